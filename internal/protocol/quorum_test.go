package protocol

import "testing"

// quorums are the kinds of history with servers that come back without their data.
var quorums = map[string]QuorumConfig{
	"Three":       {Nodes: 3, Clients: 4, TTL: 3 * second, Length: 120 * second, Loss: 0.02, Restart: second},
	"Five":        {Nodes: 5, Clients: 4, TTL: 3 * second, Length: 120 * second, Loss: 0.02, Restart: second},
	"ThreeSkewed": {Nodes: 3, Clients: 4, TTL: 3 * second, Length: 240 * second, Loss: 0.02, Restart: second, Skew: 5 * second},
	"Snapshots":   {Nodes: 3, Clients: 4, TTL: 3 * second, Length: 120 * second, Loss: 0.02, Restart: second, Snapshots: true},
	"FiveSkewed":  {Nodes: 5, Clients: 4, TTL: 3 * second, Length: 240 * second, Loss: 0.02, Restart: second, Skew: 5 * second},
}

func (c QuorumConfig) play(n, wanted int) (grants int, failed []*Quorum) {
	for seed := range uint64(n) {
		if len(failed) == wanted {
			break
		}
		c.Seed = seed
		q := PlayQuorum(c)
		grants += q.Grants()
		if len(q.Violations) > 0 {
			failed = append(failed, q)
		}
	}
	return grants, failed
}

func TestQuorumAllRules(t *testing.T) {
	for name, c := range quorums {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants, failed := c.play(*histories, 3)
			t.Logf("%d histories, %d grants", *histories, grants)
			for _, q := range failed {
				t.Errorf("seed %d: %v", q.Seed, q.Violations)
			}
		})
	}
}

func TestQuorumEachRuleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  Rule
		kinds []string
	}{
		{"Rejoin", Rejoin, []string{"Three", "Five", "ThreeSkewed", "FiveSkewed"}},
		{"SameRun", SameRun, []string{"Snapshots"}},
		{"TokenFloor", TokenFloor, []string{"Three", "Five"}},
		{"TokenRound", TokenRound, []string{"ThreeSkewed", "FiveSkewed"}},
	} {
		for _, kind := range c.kinds {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				config := quorums[kind]
				config.Off = c.rule
				_, failed := config.play(enough, 1)
				if len(failed) == 0 {
					t.Fatal("the model does not notice")
				}
				t.Logf("seed %d: %v", failed[0].Seed, failed[0].Violations)
			})
		}
	}
}
