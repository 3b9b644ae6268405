#!/bin/sh
# Starts Redis as Dyno needs it: start.sh [options of redis-server].
# With REDIS_API_PASSWORD and REDIS_WORKER_PASSWORD, or the files that REDIS_API_PASSWORD_FILE and
# REDIS_WORKER_PASSWORD_FILE name, only the users of users.acl can log in. Without passwords, Redis admits every client.
# For an administrator, add a user to users.acl.
set -eu
folder=$(dirname "$0")

sha256() {
  printf %s "$1" | sha256sum | cut -d ' ' -f 1
}

# Dyno reads its password from a file, and strips the spaces around it.
check() {
  case $2 in
    [[:space:]]* | *[[:space:]]) echo "$1 begins or ends with a space: choose another password" >&2; exit 1 ;;
  esac
}

if [ -n "${REDIS_API_PASSWORD_FILE:-}${REDIS_WORKER_PASSWORD_FILE:-}" ]; then
  REDIS_API_PASSWORD=$(cat "${REDIS_API_PASSWORD_FILE:?}")
  REDIS_WORKER_PASSWORD=$(cat "${REDIS_WORKER_PASSWORD_FILE:?}")
  : "${REDIS_API_PASSWORD:?is empty}" "${REDIS_WORKER_PASSWORD:?is empty}"
fi
if [ -n "${REDIS_API_PASSWORD:-}${REDIS_WORKER_PASSWORD:-}" ]; then
  check REDIS_API_PASSWORD "${REDIS_API_PASSWORD:?}"
  check REDIS_WORKER_PASSWORD "${REDIS_WORKER_PASSWORD:?}"
  users=$(mktemp)
  case $(redis-server --version) in
    *v=7.0.*) unknown=' +client|setinfo' ;; # came with 7.2
    *) unknown=' +none' ;;
  esac
  sed -e '/^#/d' -e '/^$/d' \
    -e "s/API_PASSWORD_SHA256/$(sha256 "$REDIS_API_PASSWORD")/" \
    -e "s/WORKER_PASSWORD_SHA256/$(sha256 "$REDIS_WORKER_PASSWORD")/" "$folder/users.acl" |
    sed -e ':more' -e '$!{N;b more' -e '}' -e 's/\n  */ /g' -e "s/$unknown//g" > "$users"
  set -- "$@" --aclfile "$users"
fi
unset REDIS_API_PASSWORD REDIS_WORKER_PASSWORD
case ${DYNO_DURABILITY:-everysec} in
  none) set -- --appendonly no "$@" ;;
  *) set -- --appendfsync "${DYNO_DURABILITY:-everysec}" "$@" ;;
esac
exec redis-server "$folder/redis.conf" "$@"
