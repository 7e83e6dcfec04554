#compdef levin
# Completion of levin for zsh; in ~/.zshrc, after compinit:  source <(levin completion zsh)
# The program itself is asked what fits, so that its own classes and options are known.
_levin() {
  local -a open plain shown_open shown_plain
  local line text shown files
  for line in "${(@f)$("${(Q)words[1]/#\~/$HOME}" completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    text="${line%%$'\t'*}"
    shown="${line/$'\t'/  }"
    case "$text" in
      '') ;;
      :files) files=1 ;;
      *[=.]) open+=("$text"); shown_open+=("$shown") ;;
      *) plain+=("$text"); shown_plain+=("$shown") ;;
    esac
  done
  (( $#open )) && compadd -l -S '' -d shown_open -a open
  (( $#plain )) && compadd -l -d shown_plain -a plain
  if [[ -n "$files" ]]; then
    [[ "$PREFIX" == --*=* ]] && compset -P 1 '*='
    _files
  fi
}
compdef _levin levin
