package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Each setting that hurts is found, and none that does not.
func TestFindings(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		got  backend.Finding
		want backend.Level
	}{
		"Redis 7":               {checkVersion(info{"redis_version": "7.0.15"}), backend.OK},
		"Redis 6.0":             {checkVersion(info{"redis_version": "6.0.16"}), backend.Fault},
		"Redis 5":               {checkVersion(info{"redis_version": "5.0.3"}), backend.Fault},
		"Valkey":                {checkVersion(info{"redis_version": "7.2.4", "valkey_version": "8.0.1"}), backend.OK},
		"no version":            {checkVersion(info{}), backend.OK},
		"evicts":                {checkEviction(info{"maxmemory_policy": "volatile-ttl", "maxmemory": "100"}), backend.Fault},
		"evicts without bound":  {checkEviction(info{"maxmemory_policy": "volatile-ttl", "maxmemory": "0"}), backend.OK},
		"evicts nothing":        {checkEviction(info{"maxmemory_policy": "noeviction", "maxmemory": "100"}), backend.OK},
		"master":                {checkRole(info{"role": "master"}), backend.OK},
		"replica":               {checkRole(info{"role": "slave", "slave_read_only": "1"}), backend.Fault},
		"writable replica":      {checkRole(info{"role": "slave", "slave_read_only": "0"}), backend.Warning},
		"full":                  {checkMemory(info{"used_memory": "95", "maxmemory": "100"}), backend.Warning},
		"half full":             {checkMemory(info{"used_memory": "50", "maxmemory": "100"}), backend.OK},
		"unbounded":             {checkMemory(info{"used_memory": "50", "maxmemory": "0"}), backend.OK},
		"clock ahead":           {checkClock(now.Add(2*time.Second), now, now.Add(time.Millisecond)), backend.Warning},
		"clock behind":          {checkClock(now.Add(-2*time.Second), now, now.Add(time.Millisecond)), backend.Warning},
		"clock right":           {checkClock(now, now, now.Add(3*time.Second)), backend.OK},
		"replicas unasked":      {(&Backend{}).checkReplicas(info{"role": "master", "connected_slaves": "1"}), backend.Warning},
		"replicas missing":      {(&Backend{replicas: 1}).checkReplicas(info{"role": "master", "connected_slaves": "0"}), backend.Fault},
		"replicas asked":        {(&Backend{replicas: 1}).checkReplicas(info{"role": "master", "connected_slaves": "2"}), backend.OK},
		"no replicas":           {(&Backend{}).checkReplicas(info{"role": "master", "connected_slaves": "0"}), backend.OK},
		"forgets":               {checkPersistence(info{"aof_enabled": "0"}), backend.Warning},
		"remembers":             {checkPersistence(info{"aof_enabled": "1"}), backend.OK},
		"says nothing of files": {checkPersistence(info{}), backend.OK},
		"may not list":          {checkScan(errors.New("NOPERM")), backend.Warning},
		"may list":              {checkScan(nil), backend.OK},
	} {
		if c.got.Level != c.want || c.got.Text == "" || (c.want == backend.OK) != (c.got.Advice == "") {
			t.Errorf("%s: %+v, want level %v", name, c.got, c.want)
		}
	}
}
