# Completion of levin for bash; in ~/.bashrc:  source <(levin completion bash)
# The program itself is asked what fits, so that its own classes and options are known.
_levin() {
  local program="${1/#\~/$HOME}" words=() joined="" word k candidate
  # bash splits words at "=" and ":", and replaces only what follows the last of them.
  for ((k = 1; k <= COMP_CWORD; k++)); do
    word="${COMP_WORDS[k]}"
    if [[ ${#words[@]} -gt 0 && ( "$word" == [=:]* || -n "$joined" ) ]]; then
      words[-1]+="$word"
    else
      words+=("$word")
    fi
    joined=""
    [[ "$word" == *[=:] ]] && joined=1
  done
  word="${words[-1]}"
  local part="${word##*[=:]}"
  local before="${word%"$part"}"
  COMPREPLY=()
  while IFS= read -r candidate; do
    candidate="${candidate%%$'\t'*}"
    if [[ "$candidate" == :files ]]; then
      compopt -o filenames
      while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "$part")
    else
      COMPREPLY+=("${candidate#"$before"}")
    fi
  done < <("$program" completion bash -- "${words[@]}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=.] ]] && compopt -o nospace
  return 0
}
complete -F _levin levin
