#compdef podprobe
# zsh completion of podprobe: source <(podprobe completion zsh), or this text as the file _podprobe in $fpath

# Sets options, values (the options with a value), nouns (words after the verb) and pods (pods stand there) of a verb.
_podprobe_table() {
  case $1 in
@TABLE@
  esac
}

_podprobe() {
  local cur=${words[CURRENT]} verb='' noun='' skip='' before='' word
  local options='' values='' nouns='' pods=''
  local -a given names
  integer i
  _podprobe_table ''
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if [[ -n $skip ]]; then
      skip=''
      case $before in --root | -n | --namespace) given+=("$before" "$word") ;; esac
    elif [[ $word == (--root|--namespace)=* ]]; then
      given+=("$word")
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
  if [[ -n $skip ]]; then
    _files
  elif [[ $cur == -* ]]; then
    compadd -- ${=options}
  elif [[ -z $verb ]]; then
    compadd -- @VERBS@
  elif [[ -n $pods && -z $noun || $noun == (po|pod|pods) ]]; then
    names=(${${(f)"$(${words[1]} get pods -o name $given 2>/dev/null)"}#pod/})
    compadd -- $names
  elif [[ -n $nouns && -z $noun ]]; then
    compadd -- ${=nouns}
  else
    _files
  fi
}

if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
  _podprobe "$@"
else
  compdef _podprobe podprobe
fi
