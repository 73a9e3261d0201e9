#!/bin/sh
# Makes the data where there are none and runs the scripts of the pod, then becomes the server.
set -eu

as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }

mkdir -p "$PGDATA" /run/postgresql
chown -R postgres:postgres "$PGDATA" /run/postgresql
chmod 700 "$PGDATA"

if [ -s "$PGDATA/PG_VERSION" ]; then
  echo "Skipping initialization: there are data in $PGDATA"
else
  as_postgres initdb -D "$PGDATA" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" \
    --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  # On its socket only, so that nobody takes it for ready.
  as_postgres pg_ctl -D "$PGDATA" -w start -o "-c listen_addresses=''"
  as_postgres createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
  for script in /docker-entrypoint-initdb.d/*; do
    case $script in
      *.sql) as_postgres psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -f "$script" ;;
      *.sh) "$script" ;;
    esac
  done
  as_postgres pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -D "$PGDATA" -c listen_addresses='*'
