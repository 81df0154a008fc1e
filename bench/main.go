// Command bench compares dlock with other ways to lock, on servers that it
// starts itself, and writes what it found out: make compare.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerName {
		if err := workerMain(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	hurry := flag.Bool("quick", false, "see that all works; the figures mean nothing, and are not written")
	render := flag.Bool("render", false, "write the texts and charts of the results that are there")
	only := flag.String("only", "", "workloads to run, such as W1,held/1000, or distance, distance/30ms or distance/etcd alone, processes; the results of others stay as they are")
	remark := flag.String("remark", "", "what readers have to know of this run; it stands beside the figures")
	flag.Parse()
	if err := run(*hurry, *render, *remark, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const resultsFile = "results/compare.json"

func run(hurry, render bool, remark string, only []string) error {
	if render {
		return write(".")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	z := full
	if hurry {
		z = quick
	}
	if len(only) > 0 && only[0] == acrossProcesses {
		return runAcrossProcesses(ctx, hurry, remark)
	}
	if len(only) > 0 && strings.HasPrefix(only[0], byDistance) {
		return runByDistance(ctx, z, only, remark)
	}
	s, err := startServers()
	if err != nil {
		return errors.Join(err, s.close())
	}
	r := compare(ctx, s, z, only, os.Stderr)
	if err := errors.Join(ctx.Err(), s.close()); err != nil || hurry {
		return errors.Join(err, r.failures())
	}
	r.Remark = remark
	if len(only) > 0 {
		r.keepOthers(resultsFile)
	}
	if err := r.save(resultsFile); err != nil {
		return err
	}
	return errors.Join(write("."), r.failures())
}
