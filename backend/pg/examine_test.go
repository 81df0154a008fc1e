package pg

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Each setting that hurts is found on a server that is well otherwise.
func TestExamine(t *testing.T) {
	for name, o := range map[string]Options{
		"":            {},
		"pooler":      {SessionPooler: true},
		"connections": {MaxConns: 1000},
	} {
		p := newPeer(t, shared.Addr(), o, time.Minute)
		subjects := make(map[string]backend.Level)
		must(t, p.Examine(testContext(t), func(f backend.Finding) { subjects[f.Subject] = f.Level }))
		if len(subjects) != 5 {
			t.Errorf("%d subjects: %v", len(subjects), subjects)
		}
		for subject, level := range subjects {
			if (level > backend.OK) != (subject == name) {
				t.Errorf("%q: %s is %v", name, subject, level)
			}
		}
	}
	if f := checkVersion(130010); f.Level != backend.Warning {
		t.Errorf("%+v", f)
	}
	if f := checkLockTable(600, 1000); f.Level != backend.Warning {
		t.Errorf("%+v", f)
	}
}
