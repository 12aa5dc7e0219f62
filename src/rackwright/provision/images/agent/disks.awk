# What `gather_disks` of disks wrote, as one report: `json` and `table` below `folder`.
# What strangers wrote on a disk is bounded here: its length, its letters, and how much of it is listed.

function plain(value, most,    out, n, letter, code) {
    if (index(value, "\\") == 0) return substr(value, 1, most)
    out = ""
    while (value != "" && length(out) < most) {
        if (substr(value, 1, 2) == "\\x") {
            code = 16 * (index(hexadecimal, substr(value, 3, 1)) - 1) + index(hexadecimal, substr(value, 4, 1)) - 1
            letter = code >= 32 && code < 127 ? sprintf("%c", code) : "?"
            value = substr(value, 5)
        } else {
            letter = substr(value, 1, 1)
            value = substr(value, 2)
        }
        out = out letter
    }
    return out
}

function quoted(value,    out, n, letter) {
    gsub(/[^ -~]/, "", value)
    if (value !~ /["\\]/) return "\"" value "\""
    out = ""
    for (n = 1; n <= length(value); n++) {
        letter = substr(value, n, 1)
        out = out (letter == "\"" || letter == "\\" ? "\\" : "") letter
    }
    return "\"" out "\""
}

function field(key, value) { return value == "" ? "" : ",\"" key "\":" quoted(value) }

function number(key, value) { return value == "" ? "" : ",\"" key "\":" sprintf("%.0f", value) }

function shown_bytes(value) {
    if (value >= 1e12) return sprintf("%.1f TB", value / 1e12)
    if (value >= 1e9) return sprintf("%.1f GB", value / 1e9)
    return sprintf("%.1f MB", value / 1e6)
}

# add DEVICE TYPE UUID LABEL: something that is on disk `owner`.
function add(device, type, uuid, label,    at) {
    contents[owner]++
    at = owner SUBSEP contents[owner]
    content_device[at] = device
    content_type[at] = type
    content_uuid[at] = uuid
    content_label[at] = label
}

function hex_number(digits, from, count,    n, value) {
    value = 0
    for (n = count - 1; n >= 0; n--)
        value = value * 256 + 16 * (index(hexadecimal, substr(digits, from + 2 * n, 1)) - 1) \
            + index(hexadecimal, substr(digits, from + 2 * n + 1, 1)) - 1
    return value
}

function hex_text(digits, from, count,    n, code, out) {
    out = ""
    for (n = 0; n < count; n++) {
        code = hex_number(digits, from + 2 * n, 1)
        if (code == 0) break
        out = out (code >= 32 && code < 127 ? sprintf("%c", code) : "?")
    }
    return out
}

# read_metadata DEVICE: the volume group that LVM's text describes; sets vg_name, vg_identity and the lists of volumes.
function read_metadata(device,    file, line, depth, lines, words, section, volume) {
    file = folder "/metadata/" device
    vg_name = vg_identity = ""
    depth = lines = volumes = 0
    while (lines++ < 20000 && (getline line < file) > 0) {
        gsub(/^[ \t]+/, "", line)
        sub(/[ \t]*#.*$/, "", line)
        if (line ~ /^[A-Za-z0-9+_.-]+ \{$/) {
            split(line, words, " ")
            depth++
            if (depth == 1 && vg_name == "") vg_name = substr(words[1], 1, 128)
            if (depth == 2) section = words[1]
            if (depth == 3 && section == "logical_volumes") volume = substr(words[1], 1, 128)
        } else if (line == "}") {
            depth--
        } else if (line ~ /^id = "[A-Za-z0-9-]+"$/) {
            if (depth == 1) vg_identity = line
            if (depth == 3 && section == "logical_volumes") {
                volume_name[++volumes] = volume
                volume_identity[volumes] = line
            }
        }
        if (depth <= 0 && vg_name != "") break
    }
    close(file)
}

# The head of a disk counts only where a partition table is in it: elsewhere it is part of what a system writes to.
# look DEVICE: adds what is on a disk or on one of its partitions, and writes what identifies it; 0: nothing known.
function look(device,    n, m, at, seen, any) {
    for (n = 1; n <= signatures[device]; n++) {
        at = device SUBSEP n
        if (type[at] == "PMBR" || (device, uuid[at], type[at], label[at]) in seen_signature) continue
        seen_signature[device, uuid[at], type[at], label[at]] = 1
        any = 1
        if (type[at] == "gpt" || type[at] == "dos") with_table[device] = 1
        print "signature", type[at], uuid[at], label[at] > identity
        if (type[at] == "LVM2_member") {
            read_metadata(device)
            add(device, type[at], uuid[at], vg_name)
            print "group", vg_name, vg_identity > identity
            for (m = 1; m <= volumes; m++) {
                add(vg_name "/" volume_name[m], "logical volume", "", "")
                print "volume", volume_name[m], volume_identity[m] > identity
            }
        } else {
            add(device, plain(type[at], 32), plain(uuid[at], 64), plain(label[at], 128))
        }
    }
    return any
}

function content_json(at,    out) {
    out = "{\"device\":" quoted(content_device[at]) field("type", content_type[at]) field("label", content_label[at])
    out = out field("uuid", content_uuid[at])
    if (content_device[at] in part_bytes) out = out number("bytes", part_bytes[content_device[at]])
    if (content_type[at] ~ /^ext/ && content_device[at] in mounted_on)
        out = out field("mounted_on", mounted_on[content_device[at]]) number("mounted_at", mounted_at[content_device[at]])
    return out "}"
}

function content_words(at) {
    return content_device[at] " " content_type[at] (content_label[at] == "" ? "" : " \"" content_label[at] "\"")
}

BEGIN {
    FS = "\t"
    hexadecimal = "0123456789abcdef"
    most_bytes = 60000 # of all contents: a registration has 256 KiB in all
    is_whole = (getline line < (folder "/whole")) >= 0
    while ((getline < (folder "/devices")) > 0) {
        disk[++disks] = $1
        name[$1] = substr($2, 1, 128)
        serial[$1] = substr($3, 1, 64)
        wwn[$1] = substr($4, 1, 96)
        bus[$1] = $5
        rotational[$1] = $6
        sector_bytes[$1] = $8
        disk_bytes[$1] = 512 * $7
    }
    while ((getline < (folder "/partitions")) > 0) {
        part[$1, ++parts[$1]] = $2
        part_identity[$2] = "partition " $3 " " $4 " " $5
        part_bytes[$2] = 512 * $5
    }
    while ((getline line < (folder "/unreadable")) > 0) unreadable[line] = 1
    while ((getline line < (folder "/zeros")) > 0) zeros[line] = 1
    FS = ","
    while ((getline < (folder "/signatures")) > 0) {
        signatures[$1]++
        at = $1 SUBSEP signatures[$1]
        type[at] = $2
        uuid[at] = $3
        label[at] = substr($0, length($1) + length($2) + length($3) + 4)
    }
    FS = "\t"
    while ((getline line < (folder "/mounts")) > 0) {
        if (line ~ /^device /) device = substr(line, 8)
        else superblock[device] = superblock[device] line
    }
    for (device in superblock) {
        mounted_at[device] = hex_number(superblock[device], 2 * 44 + 1, 4)
        mounted_on[device] = hex_text(superblock[device], 2 * 136 + 1, 64)
    }
    system("mkdir -p " folder "/identity")
    for (n = 1; n <= disks; n++) {
        owner = disk[n]
        identity = folder "/identity/" owner
        print "disk", disk_bytes[owner] > identity
        any = look(owner)
        for (m = 1; m <= parts[owner]; m++) {
            device = part[owner, m]
            if (device in unreadable) unreadable[owner] = 1
            print part_identity[device] > identity
            if (!look(device)) add(device, "partition", "", "")
        }
        if (!any && !parts[owner] && !(owner in zeros) && !(owner in unreadable)) {
            add(owner, "unrecognized data", "", "")
            with_table[owner] = 1
        }
        close(identity)
    }
    if (disks) {
        command = "cd " folder " && cd head && sha256sum *"
        while ((command | getline line) > 0) {
            owner = substr(line, 67)
            if (owner in with_table || parts[owner]) print "head", substr(line, 1, 64) >> (folder "/identity/" owner)
        }
        close(command)
        for (n = 1; n <= disks; n++) close(folder "/identity/" disk[n])
        command = "cd " folder " && cd identity && sha256sum *"
        while ((command | getline line) > 0) fingerprint[substr(line, 67)] = substr(line, 1, 64)
        close(command)
    }
    printf "" > (folder "/json")
    printf "" > (folder "/table")
    for (n = 1; n <= disks; n++) {
        owner = disk[n]
        known = is_whole && !(owner in unreadable) && (getline line < (folder "/head/" owner)) >= 0
        print_disk(owner, known, int(most_bytes / disks))
    }
}

function print_disk(owner, known, most,    m, out, entry, words, used, left) {
    out = (n > 1 ? "," : "") "{\"name\":" quoted(name[owner]) field("device", owner) number("bytes", disk_bytes[owner])
    out = out field("serial", serial[owner]) field("wwn", wwn[owner]) field("bus", bus[owner])
    if (rotational[owner] != "") out = out ",\"rotational\":" (rotational[owner] == 0 ? "false" : "true")
    out = out number("sector_bytes", sector_bytes[owner]) ",\"contents\":["
    words = shown_bytes(disk_bytes[owner]) (serial[owner] == "" ? "" : ", serial " serial[owner])
    words = words (known ? (contents[owner] ? ": " : ": empty") : ": it cannot be read")
    for (m = 1; m <= contents[owner]; m++) {
        entry = content_json(owner SUBSEP m)
        if (used + length(entry) + 80 > most || m > 120) {
            left = contents[owner] - m + 1
            out = out (m > 1 ? "," : "") "{\"device\":" quoted(owner) ",\"type\":\"" left " more, not listed\"}"
            words = words "; " left " more"
            break
        }
        used += length(entry) + 1
        out = out (m > 1 ? "," : "") entry
        if (length(words) < 500) words = words (m > 1 ? "; " : "") content_words(owner SUBSEP m)
    }
    out = out "]"
    if (known) out = out ",\"fingerprint\":\"" fingerprint[owner] "\""
    print out "}" > (folder "/json")
    state = !known ? "unknown" : contents[owner] ? "data" : "blank"
    gsub(/[^ -~]/, "", words)
    print name[owner] "\t" owner "\t" fingerprint[owner] "\t" state "\t" words > (folder "/table")
}
