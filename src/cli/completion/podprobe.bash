# bash completion of podprobe: source <(podprobe completion bash)

# Sets options, values (the options with a value), nouns (words after the verb) and pods (pods stand there) of a verb.
_podprobe_table() {
  case $1 in
@TABLE@
  esac
}

_podprobe() {
  local cur=${COMP_WORDS[COMP_CWORD]} verb='' noun='' skip='' before='' word i
  local options='' values='' nouns='' pods=''
  local -a given=()
  COMPREPLY=()
  _podprobe_table ''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' ]]; then
      # bash cuts --root=DIR into three words.
      skip=1
    elif [[ -n $skip ]]; then
      skip=''
      case $before in --root | -n | --namespace) given+=("$before" "$word") ;; esac
    elif [[ $word == -* ]]; then
      before=$word
      if [[ " $values " == *" $word "* ]]; then skip=1; fi
    elif [[ -z $verb ]]; then
      verb=$word
      _podprobe_table "$verb"
    elif [[ -z $noun ]]; then
      noun=$word
    fi
  done
  if [[ $cur == '=' ]]; then cur='' skip=1; fi
  if [[ -n $skip ]]; then
    compopt -o default 2>/dev/null
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  elif [[ -z $verb ]]; then
    mapfile -t COMPREPLY < <(compgen -W '@VERBS@' -- "$cur")
  elif [[ -n $pods && -z $noun || $noun == @(po|pod|pods) ]]; then
    while read -r word; do
      word=${word#pod/}
      if [[ $word == "$cur"* ]]; then COMPREPLY+=("$word"); fi
    done < <("${COMP_WORDS[0]}" get pods -o name "${given[@]}" 2>/dev/null)
  elif [[ -n $nouns && -z $noun ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$nouns" -- "$cur")
  else
    compopt -o default 2>/dev/null
  fi
}

complete -F _podprobe podprobe
