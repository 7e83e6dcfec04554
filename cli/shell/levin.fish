# Completion of levin for fish; in config.fish:  levin completion fish | source
# The program itself is asked what fits, so that its own classes and options are known.
function __levin_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] completion fish -- $words[2..-1] "$word" 2>/dev/null)
        if test "$line" = :files
            set -l before (string match -r -- '^--[^=]*=' "$word")
            for file in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$word"))
                echo "$before$file"
            end
        else
            echo $line
        end
    end
end
complete -c levin -f -a '(__levin_complete)'
