#!/bin/sh
# Starts or stops the nginx of a folder, or says whether it runs, as a unit of a worker's config:
#
#   units:
#     web-1:
#       start: [/srv/edge/nginx.sh, start, /srv/edge/web-1]
#       stop: [/srv/edge/nginx.sh, stop, /srv/edge/web-1]
#       running: [/srv/edge/nginx.sh, running, /srv/edge/web-1]
set -u

runs() { [ -s "$2/nginx.pid" ] && kill -0 "$(cat "$2/nginx.pid")"; } 2>/dev/null

case $1 in
start)
  runs "$@" && exit 0
  nginx -e "$2/error.log" -p "$2" -c "$2/nginx.conf" || exit 1
  until runs "$@"; do sleep 0.05; done
  ;;
stop)
  runs "$@" || exit 0
  kill -QUIT "$(cat "$2/nginx.pid")"
  while runs "$@"; do sleep 0.05; done
  ;;
running)
  runs "$@"
  ;;
esac
