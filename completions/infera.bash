# bash completion for infera; made by `infera completion bash`
_infera_completion() {
    local line=${COMP_LINE:0:COMP_POINT} IFS=$' \t' word prefix
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[${#words[@]}-1]}
    IFS=$'\n'
    COMPREPLY=( $( COMP_WORDS="$line" COMP_CWORD=$(( ${#words[@]} - 1 )) \
        _INFERA_COMPLETE=complete_bash "$1" 2>/dev/null ) )
    # readline replaces only what follows the last colon of the word
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        prefix=${word%"${word##*:}"}
        COMPREPLY=( "${COMPREPLY[@]#"$prefix"}" )
    fi
}
complete -o default -F _infera_completion infera
