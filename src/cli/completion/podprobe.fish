# fish completion of podprobe: podprobe completion fish | source

# The kind before the slash of the word at the cursor, else the first word that is a kind.
function __podprobe_kind
    set -l kinds @KINDS@
    set -l before (string split -m1 / -- (commandline -ct))
    set -l words (commandline -opc)
    if set -q before[2]; and contains -- $before[1] $kinds
        echo $before[1]/
        return
    end
    for word in $words[3..]
        if contains -- $word $kinds
            echo $word
            return
        end
    end
    return 1
end

# The names of a kind. After KIND/, each name is KIND/NAME.
function __podprobe_names
    set -l kind (string replace / '' -- $argv[1])
    set -l prefix (string match -r '.*/' -- $argv[1])
    podprobe get $kind -o name 2>/dev/null | string replace -r '^[^/]*/' "$prefix"
end

complete -c podprobe -f
