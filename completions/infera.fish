# fish completion for infera; made by `infera completion fish`
function __infera_complete
    env _INFERA_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] \
        _TYPER_COMPLETE_ARGS=(commandline -cp) infera 2>/dev/null
end
complete --command infera --no-files --arguments "(__infera_complete get-args)" \
    --condition "__infera_complete is-args"
