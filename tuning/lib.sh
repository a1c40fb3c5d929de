# What the stages share. A stage has `explain`, and `wants`, which prints one
# wanted value a line: KIND, FILE, VALUE, separated by tabs. Kinds:
#
#   least    the numbers in FILE are at least those of VALUE, one by one
#   is       FILE holds VALUE, white space aside
#   choice   FILE offers words and marks the one in force with brackets
#   file     FILE is ours: it holds VALUE (\n for line ends), or does not exist
#   feature  FILE is a setting that ethtool knows: group/name
#   note     VALUE is said, nothing can be set
# shellcheck shell=bash disable=SC2154 # root, state, service, cpus and nic come from `tune`

want() { printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
note() { want note - "$*"; }

read_value() { # KIND FILE
  case $1 in
    feature) feature_get "$2" ;;
    choice) [[ -r $root$2 ]] && sed -n 's/.*\[\([^]]*\)\].*/\1/p' "$root$2" ;;
    file) [[ -r $root$2 ]] && sed ':a;N;$!ba;s/\n/\\n/g' "$root$2" ;;
    *) [[ -r $root$2 ]] && tr -s '\t ' '  ' <"$root$2" | tr '\n' ' ' | sed 's/ *$//' ;;
  esac
}

write_value() { # KIND FILE VALUE
  case $1 in
    feature) feature_set "$2" "$3" ;;
    file)
      mkdir -p "$(dirname "$root$2")" && printf '%b\n' "$3" >"$root$2" ;;
    *) printf '%s\n' "$3" >"$root$2" ;;
  esac 2>/dev/null
}

satisfied() { # KIND HAS WANTED
  local has wanted
  case $1 in
    least)
      read -ra has <<<"$2"
      read -ra wanted <<<"$3"
      local i
      for i in "${!wanted[@]}"; do
        [[ ${has[i]:-} =~ ^[0-9]+$ ]] && ((has[i] >= wanted[i])) || return 1
      done ;;
    is) [[ $(without_zeros "$2") == "$(without_zeros "$3")" ]] ;;
    *) [[ $2 == "$3" ]] ;;
  esac
}

# Masks are shown with as many leading zeros as the host has cores.
without_zeros() {
  local mask=${1,,}
  while [[ $mask == [0,]* ]]; do mask=${mask:1}; done
  echo "$mask"
}

# The wanted numbers, each raised to what is there already: applying never lowers.
raised() { # HAS WANTED
  local has wanted i
  read -ra has <<<"$1"
  read -ra wanted <<<"$2"
  for i in "${!wanted[@]}"; do
    [[ ${has[i]:-} =~ ^[0-9]+$ ]] && ((has[i] > wanted[i])) && wanted[i]=${has[i]}
  done
  echo "${wanted[*]}"
}

# A value on one line.
shown() { echo "${1:-nothing}" | sed 's/\\n/; /g'; }

each_want() { # check|apply STAGE
  local kind file value has status=0
  while IFS=$'\t' read -r kind file value; do
    if [[ $kind == note ]]; then
      printf '  -       %s\n' "$value"
      continue
    fi
    if ! has=$(read_value "$kind" "$file") && [[ $kind != file ]]; then
      printf '  -       %s: not on this host\n' "$file"
      continue
    fi
    if satisfied "$kind" "$has" "$value"; then
      printf '  ok      %s = %s\n' "$file" "$(shown "$has")"
    elif [[ $1 == check ]]; then
      printf '  differs %s = %s, wanted %s\n' "$file" "$(shown "$has")" "$(shown "$value")"
      status=1
    else
      [[ $kind == least ]] && value=$(raised "$has" "$value")
      if save "$2" "$kind" "$file" "$has" && write_value "$kind" "$file" "$value"; then
        printf '  set     %s = %s, was %s\n' "$file" "$(shown "$value")" "$(shown "$has")"
      else
        printf '  FAILED  %s = %s: cannot be set (not root, a container, or a card that lacks it)\n' "$file" "$(shown "$has")"
        status=1
      fi
    fi
  done < <(wants)
  return "$status"
}

# Keeps the first value ever saved of a file: applying twice still reverts to the original.
save() { # STAGE KIND FILE VALUE
  mkdir -p "$state" 2>/dev/null || return 1
  cut -f2 "$state/$1" 2>/dev/null | grep -qxF -- "$3" && return 0
  printf '%s\t%s\t%s\n' "$2" "$3" "$4" >>"$state/$1"
}

revert_stage() { # STAGE
  local saved=$state/$1 kind file value status=0
  if [[ ! -e $saved ]]; then
    printf '  -       nothing was applied\n'
    return 0
  fi
  local left=()
  while IFS=$'\t' read -r kind file value; do
    if [[ $kind == file && -z $value ]]; then
      rm -f "$root$file" && rmdir --ignore-fail-on-non-empty "$(dirname "$root$file")" && printf '  removed %s\n' "$file" && continue
    elif write_value "$kind" "$file" "$value"; then
      printf '  back    %s = %s\n' "$file" "$(shown "$value")"
      continue
    fi
    printf '  FAILED  %s: cannot be set back to %s\n' "$file" "$value"
    left+=("$kind"$'\t'"$file"$'\t'"$value")
    status=1
  done < <(tac "$saved")
  if ((${#left[@]})); then
    printf '%s\n' "${left[@]}" | tac >"$saved"
  else
    rm -f "$saved"
  fi
  return "$status"
}

# 0-3,8 as 0 1 2 3 8.
cores_of() {
  local part
  for part in ${1//,/ }; do
    seq -s ' ' "${part%-*}" "${part#*-}"
  done | tr '\n' ' '
}

online() { cat "$root/sys/devices/system/cpu/online"; }

# Cores of the units.
unit_cores() {
  if [[ -n $cpus ]]; then
    cores_of "$cpus"
  else
    local list
    read -ra list < <(cores_of "$(online)")
    echo "${list[@]:1}"
  fi
}

# Cores that are left for everything else: interrupts, agents, the rest of the system.
other_cores() {
  local units core
  units=" $(unit_cores) "
  for core in $(cores_of "$(online)"); do
    [[ $units == *" $core "* ]] || printf '%s ' "$core"
  done
}

list_of() { tr -s ' ' ',' <<<"$*" | sed 's/^,//; s/,$//'; }

# A list of cores as the hexadecimal mask of /sys, 32 bits a group.
mask_of() {
  local words=(0) core word text='' i
  for core in "$@"; do
    word=$((core / 32))
    while ((${#words[@]} <= word)); do words+=(0); done
    ((words[word] |= 1 << (core % 32))) || true
  done
  for ((i = ${#words[@]} - 1; i >= 0; i--)); do
    if [[ -z $text ]]; then printf -v text '%x' "${words[i]}"; else printf -v text '%s,%08x' "$text" "${words[i]}"; fi
  done
  echo "$text"
}

card() {
  if [[ -n $nic ]]; then echo "$nic"; return; fi
  awk '$2 == "00000000" { print $1; exit }' "$root/proc/net/route" 2>/dev/null
}

# Settings of a card as ethtool shows them: features/NAME (on or off), coalesce/NAME, ring/NAME.
feature_get() {
  local name=${1#*/} value
  command -v ethtool >/dev/null || return 1
  case ${1%%/*} in
    features) value=$(ethtool -k "$(card)" 2>/dev/null | awk -v n="$name:" '$1 == n && $3 != "[fixed]" { print $2 }') ;;
    coalesce) value=$(ethtool -c "$(card)" 2>/dev/null | awk -v n="$name:" '$1 == n { print $2 } n == "adaptive-rx:" && $1 == "Adaptive" { print $3 }') ;;
    ring) value=$(ethtool -g "$(card)" 2>/dev/null | awk -v n="${name^^}:" '/Current/ { c = 1 } c && toupper($1) == n { print $2 }') ;;
  esac
  [[ -n $value && $value != n/a ]] && echo "$value"
}

# The most that a ring of the card holds.
ring_max() {
  ethtool -g "$(card)" 2>/dev/null | awk -v n="${1^^}:" '/Current/ { exit } toupper($1) == n { print $2 }'
}

feature_set() {
  local name=${1#*/}
  case ${1%%/*} in
    features) ethtool -K "$(card)" "$name" "$2" >/dev/null ;;
    coalesce) ethtool -C "$(card)" "$name" "$2" >/dev/null ;;
    ring) ethtool -G "$(card)" "$name" "$2" >/dev/null ;;
  esac
}
