# bash completion of podprobe: source <(podprobe completion bash)

# Sets options, values (the options with a value), nouns (words after the verb), names (the kind of which a name stands
# first) and workloads (their kinds stand there) of a verb.
_podprobe_table() {
  case $1 in
@TABLE@
  esac
}

# Offers the names of a kind, each after a prefix.
_podprobe_names() {
  local word
  while read -r word; do
    word=$2${word#*/}
    if [[ $word == "$cur"* ]]; then COMPREPLY+=("$word"); fi
  done < <("${COMP_WORDS[0]}" get "$1" -o name "${given[@]}" 2>/dev/null)
}

_podprobe() {
  local cur=${COMP_WORDS[COMP_CWORD]} verb='' noun='' kind='' skip='' before='' word i
  local options='' values='' nouns='' names='' workloads='' kinds=' @KINDS@ '
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
    else
      noun=${noun:-$word}
      if [[ -z $kind && $verb != create && $kinds == *" $word "* ]]; then kind=$word; fi
    fi
  done
  if [[ $cur == '=' ]]; then cur='' skip=1; fi
  if [[ -n $skip ]]; then
    compopt -o default 2>/dev/null
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  elif [[ -z $verb ]]; then
    mapfile -t COMPREPLY < <(compgen -W '@VERBS@' -- "$cur")
  elif [[ $cur == */* && $kinds == *" ${cur%%/*} "* ]]; then
    _podprobe_names "${cur%%/*}" "${cur%%/*}/"
  elif [[ -n $kind ]]; then
    _podprobe_names "$kind" ''
  elif [[ -n $names && -z $noun ]]; then
    _podprobe_names "$names" ''
    if [[ -n $workloads && -n $cur ]]; then
      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W '@WORKLOADS@' -- "$cur")
    fi
  elif [[ -n $nouns && -z $noun ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$nouns" -- "$cur")
  elif [[ -n $workloads ]]; then
    mapfile -t COMPREPLY < <(compgen -W '@WORKLOADS@' -- "$cur")
  else
    compopt -o default 2>/dev/null
  fi
}

complete -F _podprobe podprobe
