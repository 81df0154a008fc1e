package zk_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
)

// Each setting that hurts is found on a server that is well otherwise.
func TestExamine(t *testing.T) {
	for name, o := range map[string]zk.Options{
		"":        {Credentials: user("alice", "secret"), Standalone: true},
		"access":  {Standalone: true},
		"session": {Credentials: user("alice", "secret"), SessionTimeout: 24 * time.Hour, Standalone: true},
		"members": {Credentials: user("alice", "secret")},
	} {
		o.Root = rootOf(t) + "-" + name // at the top: what alice creates, others may not create below
		c := connect(t, &o, shared.Addr())
		subjects := make(map[string]backend.Level)
		must(t, c.Examine(t.Context(), func(f backend.Finding) { subjects[f.Subject] = max(f.Level, subjects[f.Subject]) }))
		if len(subjects) < 4 {
			t.Errorf("few subjects: %v", subjects)
		}
		for subject, level := range subjects {
			if (level > backend.OK) != (subject == name) {
				t.Errorf("%q: %s is %v", name, subject, level)
			}
		}
	}
}
