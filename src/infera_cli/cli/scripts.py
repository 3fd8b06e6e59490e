"""The completion scripts, as files in `completions/` and on standard output.

Each is a stub that calls the program back, so it only changes when these templates change. They are ours and
not Typer's for two reasons: zsh autoloads a file from `$fpath` on the first TAB, which then has to complete
and not only to define a function; and bash cuts words at colons, which worker names (`host:port`) have.
(Source: bench-and-cli §C3.)
"""

from __future__ import annotations

FILES = {"bash": "infera.bash", "zsh": "_infera", "fish": "infera.fish", "powershell": "infera.ps1"}
"""The file of each shell under `completions/`."""

SHELLS = tuple(FILES)

_BASH = r"""# bash completion for infera; made by `infera completion bash`
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
"""

_ZSH = r"""#compdef infera
# zsh completion for infera; made by `infera completion zsh`
_infera_completion() {
  eval "$(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _INFERA_COMPLETE=complete_zsh infera 2>/dev/null)"
}
if [ "$funcstack[1]" = _infera ]; then
  _infera_completion "$@"
else
  compdef _infera_completion infera
fi
"""

_FISH = r"""# fish completion for infera; made by `infera completion fish`
function __infera_complete
    env _INFERA_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] \
        _TYPER_COMPLETE_ARGS=(commandline -cp) infera 2>/dev/null
end
complete --command infera --no-files --arguments "(__infera_complete get-args)" \
    --condition "__infera_complete is-args"
"""

_POWERSHELL = r"""# PowerShell completion for infera; made by `infera completion powershell`
Register-ArgumentCompleter -Native -CommandName infera -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $Env:_INFERA_COMPLETE = "complete_powershell"
    $Env:_TYPER_COMPLETE_ARGS = $commandAst.ToString()
    $Env:_TYPER_COMPLETE_WORD_TO_COMPLETE = $wordToComplete
    infera | ForEach-Object {
        $value, $help = $_ -Split ":::", 2
        if (-not $help) { $help = $value }
        [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
    }
    $Env:_INFERA_COMPLETE = ""
    $Env:_TYPER_COMPLETE_ARGS = ""
    $Env:_TYPER_COMPLETE_WORD_TO_COMPLETE = ""
}
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL}


def script(shell: str) -> str:
    """The completion script of one of `SHELLS`."""
    return _SCRIPTS[shell]
