package main

import (
	"context"
	"os/exec"
)

// selfCommand runs dlock itself. The environment is empty but for env, so that
// no credentials are where they are not needed.
func selfCommand(ctx context.Context, args []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self())
	cmd.Args = append([]string{"dlock"}, args...)
	cmd.Env = append([]string{}, env...)
	return cmd
}
