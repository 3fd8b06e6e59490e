# PowerShell completion for infera; made by `infera completion powershell`
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
