#compdef podprobe
# zsh completion of podprobe: source <(podprobe completion zsh), or this text as the file _podprobe in $fpath

# Sets options, values (the options with a value), nouns (words after the verb), names (the kind of which a name stands
# first) and workloads (their kinds stand there) of a verb.
_podprobe_table() {
  case $1 in
@TABLE@
  esac
}

# Offers the names of a kind, each after a prefix.
_podprobe_names() {
  local -a found
  found=(${${(f)"$(${words[1]} get $1 -o name $given 2>/dev/null)"}#*/})
  compadd -- $2${^found}
}

_podprobe() {
  local cur=${words[CURRENT]} verb='' noun='' kind='' skip='' before='' word
  local options='' values='' nouns='' names='' workloads='' kinds=' @KINDS@ '
  local -a given
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
    else
      noun=${noun:-$word}
      if [[ -z $kind && $verb != create && $kinds == *" $word "* ]]; then kind=$word; fi
    fi
  done
  if [[ -n $skip ]]; then
    _files
  elif [[ $cur == -* ]]; then
    compadd -- ${=options}
  elif [[ -z $verb ]]; then
    compadd -- @VERBS@
  elif [[ $cur == */* && $kinds == *" ${cur%%/*} "* ]]; then
    _podprobe_names ${cur%%/*} ${cur%%/*}/
  elif [[ -n $kind ]]; then
    _podprobe_names $kind ''
  elif [[ -n $names && -z $noun ]]; then
    _podprobe_names $names ''
    if [[ -n $workloads && -n $cur ]]; then compadd -- @WORKLOADS@; fi
  elif [[ -n $nouns && -z $noun ]]; then
    compadd -- ${=nouns}
  elif [[ -n $workloads ]]; then
    compadd -- @WORKLOADS@
  else
    _files
  fi
}

if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
  _podprobe "$@"
else
  compdef _podprobe podprobe
fi
