package simulation

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The scripts that tell of a loss are known by how they begin, and no others are.
func TestTellers(t *testing.T) {
	files := map[string]string{"renew": "renew.lua", "enter": "enter.lua", "downgrade": "convert.lua"}
	all, err := filepath.Glob("../../backend/redis/lua/*.lua")
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	for script, begins := range tellers {
		var found []string
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(string(text), begins) {
				found = append(found, filepath.Base(path))
			}
		}
		if !slices.Equal(found, []string{files[script]}) {
			t.Errorf("%s is taken for %v", files[script], found)
		}
	}
}

// What scripts say of a loss is understood.
func TestLossesIn(t *testing.T) {
	lock := func(name string) []string { return newKeys(name, "", ":r", ":q", ":a", ":x") }
	two := append(lock("a"), lock("b")...)
	for what, c := range map[string]struct {
		source     string
		keys, args []string
		reply      any
		lost       []loss
	}{
		"a renewal of all":        {tellers["renew"], []string{lockKey("a")}, []string{"1", "900", "w1"}, []any{int64(5), int64(9)}, nil},
		"one that is lost":        {tellers["renew"], []string{lockKey("a"), lockKey("b")}, []string{"1", "900", "w1", "w2"}, []any{int64(5), int64(9), int64(2), int64(0)}, []loss{{name: "b", id: "w2", by: "renew", one: true}}},
		"one that is broken":      {tellers["renew"], two, []string{"5", "900", "r1", "r2"}, []any{int64(5), int64(9), int64(1), int64(1), int64(2), int64(-9)}, []loss{{name: "a", id: "r1", by: "renew"}}},
		"an entry":                {tellers["enter"], lock("a")[:2], []string{"w1", "900", "2", "3"}, []any{int64(9), int64(5)}, nil},
		"an entry that is lost":   {tellers["enter"], lock("a")[:2], []string{"w1", "900", "2", "3"}, []any{int64(0), int64(5)}, []loss{{name: "a", id: "w1", by: "enter"}}},
		"a downgrade":             {tellers["downgrade"], lock("a"), []string{"w1", "shared", "0", "0", "0"}, []any{"OK", int64(0)}, nil},
		"a downgrade that failed": {tellers["downgrade"], lock("a"), []string{"w1", "shared", "0", "0", "0"}, []any{"LOST", int64(0)}, []loss{{name: "a", id: "w1", by: "downgrade"}}},
		"a minimum hold":          {tellers["downgrade"], lock("a"), []string{"w1", "expiring", "0", "0", "0"}, []any{"LOST", int64(0)}, nil},
		"another script":          {"-- Gives a hold back", lock("a"), []string{"w1", "0", "0"}, []any{int64(0), int64(0)}, nil},
	} {
		if lost := lossesIn(c.source, c.keys, c.args, c.reply); !reflect.DeepEqual(lost, c.lost) {
			t.Errorf("%s: %v, want %v", what, lost, c.lost)
		}
	}
}

// A loss is seen to be told by whatever of a client hears of it first.
func TestLapses(t *testing.T) {
	ms := time.Millisecond
	again := Op{Call: "lock", Names: []int{0}, Wait: time.Second, Unlock: "live"}
	inside := again
	inside.Lapse = "flush"
	for what, c := range map[string]struct {
		by string
		op Op
	}{
		"an entry":    {"enter", Op{Call: "lock", Hold: 500 * ms, Lapse: "flush", Inside: []Op{again}}},
		"an exit":     {"enter", Op{Call: "lock", Hold: 500 * ms, Inside: []Op{inside}}},
		"a downgrade": {"downgrade", Op{Call: "lock", Hold: 500 * ms, Lapse: "flush", Downgrade: true}},
		"a renewal":   {"renew", Op{Call: "lock", Hold: 20 * time.Second, Lapse: "flush"}},
		"a reader's":  {"renew", Op{Call: "rlock", Hold: 20 * time.Second, Lapse: "flush"}},
	} {
		c.op.Names, c.op.Unlock = []int{0}, "live"
		r := Run(t, &Plan{
			Backend: "redis", Servers: 1, Latency: ms, Names: 1, TTL: 10 * time.Second, Length: length,
			Clients: []Party{{Workers: [][]Op{{c.op}}}},
		})
		if len(r.Violations) > 0 || r.Coverage["a loss told × "+c.by] == 0 {
			t.Errorf("%s: %v\n%s", what, r.Violations, r.Table(1))
		}
	}
}

func newKeys(name string, suffixes ...string) (keys []string) {
	for _, s := range suffixes {
		keys = append(keys, lockKey(name)+s)
	}
	return keys
}
