#!/bin/sh
# Writes Dyno's secrets below a folder: make-secrets.sh FOLDER. Each goes to FOLDER/api or FOLDER/worker, as a file for
# DYNO_SECRETS_DIR; both folders exist. A password of Redis is made once and kept, unless REDIS_API_PASSWORD or
# REDIS_WORKER_PASSWORD sets it. The file DYNO_WEBHOOK_SECRET exists only while the environment has this variable.
set -eu

write() {
  rm -f "$1.new" # left by an interrupted start, and read-only
  printf %s "$2" > "$1.new"
  chmod 444 "$1.new"
  mv -f "$1.new" "$1"
}

password() {
  if [ -n "$2" ]; then
    write "$1" "$2"
  elif [ ! -s "$1" ]; then
    write "$1" "$(head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n')"
  fi
}

password "$1/api/DYNO_REDIS_PASSWORD" "${REDIS_API_PASSWORD:-}"
password "$1/worker/DYNO_REDIS_PASSWORD" "${REDIS_WORKER_PASSWORD:-}"
if [ -n "${DYNO_WEBHOOK_SECRET:-}" ]; then
  write "$1/api/DYNO_WEBHOOK_SECRET" "$DYNO_WEBHOOK_SECRET"
else
  rm -f "$1/api/DYNO_WEBHOOK_SECRET"
fi
