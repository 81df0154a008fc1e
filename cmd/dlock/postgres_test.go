//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/internal/server"
)

// Who holds a lock on Postgres, and how to end that, is to be had from the command line.
func TestHolderOnPostgres(t *testing.T) {
	t.Parallel()
	srv := server.Start(t, server.Postgres{})
	url := "postgres://postgres@" + srv.Addr() + "/postgres?sslmode=disable"
	s := newShell(t, urlVariable+"="+url)
	holder := s.start("run", "-t", "5s", "job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s.expectOutput([]string{"show", "job"}, host+", process ")
	s.expectOutput([]string{"show", "other"}, "other is free at postgres://"+srv.Addr()+"/postgres")

	s.start("unlock", "--force", "--yes", "--token", "5", "job").expect(exitConfig, "that holds it: SELECT")
	s.start("unlock", "--force", "--yes", "--token", "5", "other").expect(exitFailed, "nobody holds")
	s.start("unlock", "--force", "--yes", "other").expect(exitFailed, "nobody holds")
	_, p := s.run("unlock", "--force", "--yes", "job")
	p.expect(exitConfig, "connection")
	_, statement, _ := strings.Cut(p.err.String(), "that holds it: ")
	statement, _, _ = strings.Cut(statement, ` ("`) // its label
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	holder.expect(exitLost, "lost")
}
