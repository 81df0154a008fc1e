package main

import (
	"os"
	"strings"
	"testing"
)

// TestMain lets the test binary be a worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerName {
		main()
		return
	}
	os.Exit(m.Run())
}

// This library contends across processes for a moment; the JVMs need Maven.
func TestAcrossProcesses(t *testing.T) {
	r := &processesReport{Versions: make(map[string]string)}
	all := []library{libraries[0], libraries[4]}
	if err := r.measure(t.Context(), all, "", 1, quickTurn, quickTurn); err != nil {
		t.Fatal(err)
	}
	for _, rec := range r.Records {
		if rec.HandOvers == 0 || rec.Requests == 0 || rec.Overlaps > 0 {
			t.Errorf("%+v", rec)
		}
	}
	if table := r.table(); strings.Count(table, "**dlock") != len(all)*len(processCounts) {
		t.Errorf("the table is\n%s", table)
	}
}
