package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	dry := flag.Bool("n", false, "try it, and change nothing")
	repo := flag.String("repo", "../..", "the `folder` of the repository")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: release [-n] VERSION")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := release{repo: *repo, version: flag.Arg(0), dry: *dry, out: os.Stdout}
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
