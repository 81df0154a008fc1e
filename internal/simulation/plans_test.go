package simulation

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// TestPlans runs plans in which a rule, the simulation itself, or the library was wrong.
func TestPlans(t *testing.T) {
	ms := time.Millisecond
	party := func(workers ...[]Op) Party { return Party{Workers: workers} }
	for name, p := range map[string]*Plan{
		"a restart is still under way at the end": {
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, Unlock: "live"}})},
			Faults:  []Fault{{Kind: "restart-old", At: 50 * time.Second, For: 15 * time.Second, Size: 19 * time.Second}},
		},
		"a server that has lost its data does not tell the client that has the lock": {
			Clients: []Party{party(
				[]Op{{Call: "rlock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}},
				[]Op{{Pause: 2 * time.Second, Call: "multi", Names: []int{0}, Wait: 300 * ms, Cancel: true, Unlock: "live"}},
			)},
			Faults: []Fault{{Kind: "restart-empty", At: time.Second, For: 30 * time.Second}},
		},
		"the limit of one lock of a lease is that of all": {
			Names: 2,
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, Hold: 3 * time.Second, Unlock: "live", Inside: []Op{
				{Call: "multi", Names: []int{0, 1}, MaxHold: time.Second, Hold: 2 * time.Second, Unlock: "live"},
			}}})},
		},
		"a call that stands behind one that was told to wait ends with it": {
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: time.Minute, Unlock: "live"}}),
				party(
					[]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}},
					[]Op{{Pause: 32 * time.Second, Call: "do", Names: []int{0}}},
					[]Op{{Pause: 32 * time.Second, Call: "do", Names: []int{0}}},
					[]Op{{Pause: 32 * time.Second, Call: "do", Names: []int{0}}},
					[]Op{{Pause: 32 * time.Second, Call: "do", Names: []int{0}}},
					[]Op{{Pause: 32 * time.Second, Call: "do", Names: []int{0}}},
					[]Op{{Pause: 32 * time.Second, Call: "do", Names: []int{0}}},
				),
			},
			Faults: []Fault{{Kind: "restart-empty", At: 31 * time.Second, For: 29 * time.Second}},
		},
		"a master and its replica have one clock": {
			Replica: true, Lag: 10 * ms, TTL: time.Second,
			Clients: []Party{party([]Op{{Pause: 2 * time.Second, Call: "lock", Names: []int{0}, Hold: 3 * time.Second, Unlock: "live"}})},
			Faults: []Fault{
				{Kind: "clock-back", At: time.Second, Size: 700 * ms},
				{Kind: "failover", At: 2200 * ms, For: 50 * ms},
			},
		},
		"a replica that takes over knows which slot its master has given away": {
			Cluster: true, Replica: true, Lag: 10 * ms, Word: time.Second, TTL: 3 * time.Second,
			Clients: []Party{party([]Op{{Pause: 1750 * ms, Call: "lock", Names: []int{0}, Hold: 2 * time.Second, Unlock: "live"}})},
			Faults: []Fault{
				{Kind: "slot-move", At: time.Second, For: 50 * ms, Client: -1, Server: 2},
				{Kind: "failover", At: 1300 * ms, Client: -1, Server: 2},
			},
		},
		"who the masters are is a question of its own": {
			Names: 3, Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms,
			Clients: []Party{party([]Op{{Pause: 2 * time.Second, Call: "lock", Names: []int{1}, Unlock: "live"}, {Call: "names", Names: []int{0}}})},
			Faults:  []Fault{{Kind: "pause", At: time.Second, For: 12 * time.Second, Server: 1}},
		},
		"who reads a lock whose key was evicted brings it back with the next renewal": {
			Seed: 6,
			Clients: []Party{
				party([]Op{{Call: "rlock", Names: []int{0}, Hold: 8 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 2 * time.Second, Call: "names", Names: []int{0}}}),
			},
			Faults: []Fault{{Kind: "evict", At: time.Second, Client: -1}},
		},
		"a master of before that still answers may have a holder": {
			Names: 2, Replica: true, Lag: 100 * ms,
			Clients: []Party{
				party([]Op{
					{Call: "lock", Names: []int{0}, Unlock: "live"},
					{Pause: 1930 * ms, Call: "lock", Names: []int{0}, Hold: 3 * time.Second, Unlock: "live"},
				}),
				party([]Op{
					{Pause: time.Second, Call: "lock", Names: []int{1}, Unlock: "live"},
					{Pause: 1400 * ms, Call: "trylock", Names: []int{0}, Unlock: "live"},
				}),
			},
			Faults: []Fault{{Kind: "promotion", At: 2 * time.Second, For: 10 * time.Second, Way: 1}},
		},
		"a try ends also where a server grants late, and another takes no token": {
			Backend: "quorum", Servers: 3,
			Clients: []Party{party([]Op{
				{Call: "lock", Names: []int{0}, Unlock: "live"},
				{Pause: 10 * time.Second, Call: "trylock", Names: []int{0}, Unlock: "live"},
			})},
			Faults: []Fault{
				{Kind: "restart-empty", At: time.Second, For: 100 * ms, Client: -1, Server: 1},
				{Kind: "pause", At: 9900 * ms, For: 2700 * ms, Client: -1, Server: 2},
				{Kind: "pause", At: 12500 * ms, For: 6 * time.Second, Client: -1},
			},
		},
		"a server of a quorum that is back is asked as soon as another is late": {
			Backend: "quorum", Servers: 3,
			Clients: []Party{party([]Op{
				{Call: "lock", Names: []int{0}, Unlock: "live"},
				{Pause: 2 * time.Second, Call: "lock", Names: []int{0}, Unlock: "live"},
				{Pause: 28 * time.Second, Call: "lock", Names: []int{0}, Unlock: "live"},
			})},
			Faults: []Fault{
				{Kind: "cut", At: time.Second, For: 12 * time.Second, Client: -1},
				{Kind: "pause", At: 29 * time.Second, For: 10 * time.Second, Client: -1, Server: 2},
			},
		},
		"a place in the queue that has run out is taken away by who changes the lock next": {
			TTL: 3 * time.Second,
			Clients: []Party{party(
				[]Op{{Pause: 2340 * ms, Call: "rlock", Names: []int{0}, MinHold: 1700 * ms, Unlock: "live"}},
				[]Op{{Pause: 2900 * ms, Call: "lock", Names: []int{0}, Unlock: "live"}},
			)},
			Faults: []Fault{{Kind: "kill-client", At: 3 * time.Second}},
		},
		"Names gives a server that is silent a second more": {
			Backend: "quorum", Servers: 3,
			Clients: []Party{party([]Op{
				{Call: "lock", Names: []int{0}, Unlock: "live"},
				{Pause: 2 * time.Second, Call: "names", Names: []int{0}, Wait: 1055 * ms, Cancel: true},
			})},
			Faults: []Fault{{Kind: "pause", At: time.Second, For: 5 * time.Second, Server: 1}},
		},
		"a right that is missing inside a script is a denial": {
			Clients: []Party{party([]Op{
				{Call: "lock", Names: []int{0}, Unlock: "live"},
				{Pause: 2 * time.Second, Call: "lock", Names: []int{0}, Unlock: "live"},
			})},
			Faults: []Fault{{Kind: "noperm", At: time.Second, For: 10 * time.Second, Client: -1, Way: 2}},
		},
		"Names ends in time on a client that goes by its own timeouts": {
			Clients: []Party{{Own: &own{}, Workers: [][]Op{{{Call: "names", Names: []int{0}}, {Pause: 2 * time.Second, Call: "names", Names: []int{0}}}}}},
			Faults:  []Fault{{Kind: "hole", At: time.Second, For: 20 * time.Second, Client: -1, Way: 2}},
		},
		"a hold that is to end by itself may have done so when its owner hears of that": {
			Clients: []Party{party([]Op{
				{Call: "lock", Names: []int{0}, MinHold: 100 * ms, Unlock: "live"}, // the server knows the script
				{Pause: time.Second, Call: "lock", Names: []int{0}, MinHold: 500 * ms, Hold: 497 * ms, Unlock: "live"},
			})},
			Faults: []Fault{{Kind: "unanswered", At: 1300 * ms, For: 5 * time.Second, Size: 1}},
		},
		"a server of a quorum where others wait answers pings, and keeps scripts waiting": {
			Backend: "quorum", Servers: 3, TTL: 3 * time.Second,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 4 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "pause-writes", At: 2 * time.Second, For: 29 * time.Second, Client: -1, Server: 1}},
		},
		"a server that hangs does not hold up the login of a subscription, which it denies": {
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}}),
				{Own: &own{}, Workers: [][]Op{{{Pause: time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}}},
			},
			Faults: []Fault{
				{Kind: "login", At: 2 * time.Second, For: 10 * time.Second, Client: -1},
				{Kind: "pause", At: 2 * time.Second, For: 5 * time.Second, Client: -1},
				{Kind: "kill-subscription", At: 2500 * ms, Client: 1},
			},
		},
		"a member of a quorum that denies a release for a moment is told it again": { // it is the front
			Backend: "quorum", Servers: 3, TTL: 60 * time.Second,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 2 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 4 * time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "noperm", At: time.Second, For: 2 * time.Second, Client: -1, Server: 1, Way: 1}},
		},
		"a client that is cut off from all members of a quorum is in the way of others for its lease": {
			Backend: "quorum", Servers: 4, TTL: 3 * time.Second,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 30 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, Hold: time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 10 * time.Second, Call: "trylock", Names: []int{0}, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "hole", At: 2 * time.Second, For: 20 * time.Second, Server: everywhere, Way: 2}},
		},
		"a clock that is set forward by more than a short lease has to spare ends parts of it": {
			Backend: "quorum", Servers: 3, TTL: time.Second, Skew: time.Second,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 10 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}),
			},
			Faults: []Fault{
				{Kind: "nudge", At: 2 * time.Second, Client: -1, Server: 1, Size: 900 * ms},
				{Kind: "nudge", At: 5 * time.Second, Client: -1, Server: 2, Size: 700 * ms},
			},
		},
		"where all servers are needed, a hold that is to end before the farthest can grant it is never had": {
			Backend: "quorum", Shelves: true, Servers: 3, Need: 3, Far: 50 * ms,
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, MaxHold: 20 * ms, Wait: 20 * time.Second, Unlock: "live"}})},
		},
		"a minimum hold of more than the greatest TTL is its client's to keep, and lost as a lease is": {
			Backend: "quorum", Shelves: true, Servers: 3, MaxTTL: 12 * time.Second,
			Clients: []Party{
				party([]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, MinHold: 40 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 2 * time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}),
			},
			Faults: []Fault{
				{Kind: "cut", At: 1, For: 50 * time.Second, Client: 0, Server: 2},
				{Kind: "flush", At: 5 * time.Second, Client: -1, Server: 1},
			},
		},
		"Close waits for a minimum hold that its client keeps": {
			Backend: "quorum", Shelves: true, Servers: 3, MaxTTL: 12 * time.Second,
			Clients: []Party{party([]Op{{Pause: 45 * time.Second, Call: "lock", Names: []int{0}, MinHold: 30 * time.Second, Unlock: "live"}})},
		},
		"the world ends while a slot moves": {
			Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms,
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, Unlock: "live"}})},
			Faults: []Fault{
				{Kind: "slot-move", At: 50 * time.Second, For: 10 * time.Minute, Client: -1, Server: 0},
				{Kind: "slot-move", At: 50 * time.Second, For: 10 * time.Minute, Client: -1, Server: 1},
				{Kind: "slot-move", At: 50 * time.Second, For: 10 * time.Minute, Client: -1, Server: 2},
			},
		},
		"a client asks for a lock whose shard has gone since": {
			Seed: 1, Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms,
			Clients: []Party{party([]Op{
				{Call: "lock", Names: []int{0}, Unlock: "live"},
				{Pause: 20 * time.Second, Call: "inspect", Names: []int{0}},
			})},
			Faults: []Fault{{Kind: "shrink", At: 5 * time.Second, For: time.Second, Size: time.Second, Client: -1, Server: 2, Way: 2}},
		},
		"Do hears as it unlocks that somebody else has the key": {
			Seed: 2, Clients: []Party{party([]Op{{Call: "do", Names: []int{0}, Hold: time.Second, Uses: Uses{Function: "fails"}}})},
			Faults: []Fault{{Kind: "foreign", At: 500 * ms, For: 20 * time.Second, Client: -1, Way: 2}},
		},
		"a reader beside one of its client from before the key was evicted has the token of that": {
			Seed: 6, TTL: time.Second,
			Clients: []Party{
				party(
					[]Op{{Call: "rlock", Names: []int{0}, Hold: 40 * time.Second, Unlock: "live"}},
					[]Op{{Pause: 30 * time.Second, Call: "rlock", Names: []int{0}, Unlock: "live"}},
				),
				party([]Op{{Pause: 29 * time.Second, Call: "rlock", Names: []int{0}, Hold: 2 * time.Second, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "evict", At: time.Second, Client: -1}},
		},
		"a reader who asks after the key of a lock was evicted has a token": {
			Seed: 6,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 2 * time.Second, Unlock: "live"}}),
				{Poll: true, Workers: [][]Op{{{Pause: time.Second, Call: "rlock", Names: []int{0}, Hold: time.Second, Unlock: "live"}}}},
			},
			Faults: []Fault{{Kind: "evict", At: 2015 * ms, Client: -1}},
		},
		"what is given back as another lock of its lease has reached its limit is kept for its minimum": {
			Names: 2,
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, MaxHold: time.Second, Unlock: "live", Inside: []Op{
				{Call: "multi", Names: []int{0, 1}, MinHold: 2 * time.Second, Hold: 3 * time.Second, Unlock: "live"},
			}}})},
		},
		"what a question has sent that was given up comes to a far server beside the next": {
			Backend: "quorum", Servers: 3, Far: 50 * ms,
			Clients: []Party{{Asks: true, Workers: [][]Op{{
				{Call: "names", Names: []int{0}},
				{Pause: 15 * time.Second, Call: "names", Names: []int{0}, Wait: 150 * ms, Cancel: true},
				{Call: "names", Names: []int{0}},
			}}}},
		},
		"a connection that was made for a call which was over by then is made ready when it is used": {
			Clients: []Party{party([]Op{
				{Call: "ping", Names: []int{0}},
				{Pause: 15 * time.Second, Call: "ping", Names: []int{0}, Wait: ms, Cancel: true},
				{Call: "ping", Names: []int{0}, Wait: ms, Cancel: true},
				{Pause: 15 * time.Second, Call: "ping", Names: []int{0}},
			})},
		},
		"a question waits for the one connection of its client, on which that renews": {
			TTL: time.Second,
			Clients: []Party{{Own: &own{PoolSize: 1}, Workers: [][]Op{
				{{Call: "lock", Names: []int{0}, Hold: 30 * time.Second, Unlock: "live"}},
				slices.Repeat([]Op{{Pause: 16 * ms, Call: "inspect", Names: []int{0}}}, 1500),
			}}},
		},
		"a client whose connections end by age needs new ones, which a server refuses": {
			TTL: 3 * time.Second,
			Clients: []Party{{
				Own:     &own{PoolSize: 1, Pool: &pool{Lifetime: 2 * time.Second}},
				Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}}},
			}},
			Faults: []Fault{{Kind: "door", At: 5 * time.Second, For: 8 * time.Second, Client: -1, Way: 2}},
		},
		"a lock whose queue has come to another lock by hand": {
			Names: 2,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 40 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 2 * time.Second, Call: "lock", Names: []int{0}, Hold: time.Second, Unlock: "live"}}),
				party([]Op{{Pause: time.Second, Call: "rlock", Names: []int{1}, Hold: 20 * time.Second, Unlock: "live"}}),
			},
			Faults: slices.Repeat([]Fault{{Kind: "by-hand", At: 5 * time.Second, For: time.Second, Client: -1, Steps: copyToOther}}, 5),
		},
		"a machine that is suspended has less left of its leases by the wall clock": {
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, Hold: 40 * time.Second, Unlock: "live"}})},
			Faults:  []Fault{{Kind: "suspend", At: 21300 * ms, For: 4 * time.Second, Client: -1}, {Kind: "suspend", At: 31 * time.Second, For: 12 * time.Second, Client: -1}},
		},
		"an Unlock that hears of a loss returns after the hook that it tells of that": {
			Clients: []Party{{
				Hooks: "count", Manners: Manners{Hangs: &hanging{Hook: "Lost", For: 45 * time.Second}},
				Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 3 * time.Second, Unlock: "live"}}},
			}},
			Faults: []Fault{{Kind: "flush", At: 2900 * ms, Client: -1}},
		},
		"the one connection that a client may have to a node is forgotten when a slot comes there": {
			Names: 3, Cluster: true, Replica: true, Lag: 10 * ms, Word: 50 * ms, TTL: 5 * time.Second, Forgets: 5 * time.Second,
			Clients: []Party{{
				Own: &own{PoolSize: 1},
				Workers: [][]Op{{
					{Call: "lock", Names: []int{1}, Unlock: "live"},
					{Call: "lock", Names: []int{2}, Unlock: "live"},
					{Call: "lock", Names: []int{0}, Hold: 30 * time.Second, Unlock: "live"},
				}},
			}},
			Faults: []Fault{{Kind: "slot-move", At: 9 * time.Second, For: 50 * ms, Client: -1, Server: homeOf(slotOf(lockKey(nameOf(0))))}},
		},
		"a slot leaves with its shard, and others hear of that later than a lease can wait": {
			Cluster: true, Replica: true, Lag: 10 * ms, Word: time.Second, TTL: 400 * ms, Grows: true,
			Clients: slices.Repeat([]Party{party([]Op{{Call: "rlock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}})}, 8),
			Faults: []Fault{{
				Kind: "shrink", At: 5 * time.Second, For: 100 * ms, Size: 50 * ms, Client: -1, Server: homeOf(slotOf(lockKey(nameOf(0)))), Way: 1,
			}},
		},
		"a hold that is to end soon is over before there is a connection to the farthest server, which is needed": {
			Backend: "quorum", Servers: 3, Far: 30 * ms, Announced: true,
			Clients: []Party{party([]Op{{Pause: time.Second, Call: "trylock", Names: []int{0}, MaxHold: 272 * ms, Unlock: "live"}})},
			Faults:  []Fault{{Kind: "hole", At: 1, For: 20 * time.Second, Client: -1, Server: 1, Way: 2}},
		},
		"a lock is taken anew by a context that outlives the loss of the lease it was made from": {
			Clients: []Party{
				party([]Op{{Call: "do", Names: []int{0}, Inside: []Op{{
					Pause: 2 * time.Second, Call: "trylock", Names: []int{0}, Wait: time.Second, Hold: time.Second, Unlock: "live",
					Foreign: &ForeignContext{Type: "early", Beyond: 10 * time.Second},
					Inside:  []Op{{Call: "do", Names: []int{0}, Uses: Uses{Adapter: true}}},
				}}}}),
				party([]Op{{Pause: time.Second, Call: "break", Names: []int{0}}}),
			},
		},
		"all clients are cut off from all members of a quorum": {
			Backend: "quorum", Servers: 3,
			Clients: []Party{party(
				[]Op{{Call: "lock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}},
				[]Op{{Pause: 12 * time.Second, Call: "inspect", Names: []int{0}}},
			)},
			Faults: []Fault{{Kind: "hole", At: 10 * time.Second, For: 6 * time.Second, Client: -1, Server: everywhere, Way: 2}},
		},
		"of a program's one connection Names may be told that none is free": {
			Backend: "quorum", Servers: 3, Names: 2,
			Clients: []Party{{
				Own:     &own{Limits: &habits{Active: 1, Bursts: 1}},
				Workers: slices.Repeat([][]Op{slices.Repeat([]Op{{Pause: 2 * time.Second, Call: "names", Names: []int{0}}}, 5)}, 4),
			}},
		},
		"a reader that is let in ahead of another of its client takes that for one who waits": {
			Replica: true, Lag: 10 * ms, Acks: true,
			Clients: []Party{party(
				[]Op{{Call: "lock", Names: []int{0}, MinHold: 3 * time.Second, Unlock: "live"}},
				[]Op{{Pause: time.Second, Call: "rlock", Names: []int{0}, Hold: 5 * time.Second, Unlock: "live"}},
				[]Op{{Pause: 2 * time.Second, Call: "rlock", Names: []int{0}, Hold: 100 * ms, Unlock: "live"}},
				[]Op{{Pause: 5 * time.Second, Call: "rlock", Names: []int{0}, Unlock: "live"}},
			)},
		},
		"a try behind another that fails, as too few members grant, ends in its own time": {
			Backend: "quorum", Servers: 3,
			Clients: []Party{party(
				[]Op{{Call: "lock", Names: []int{0}, Unlock: "live"}, {Pause: 20 * time.Second, Call: "trylock", Names: []int{0}, Unlock: "live"}},
				[]Op{{Pause: 21500 * ms, Call: "trylock", Names: []int{0}, Unlock: "live"}},
			)},
			Faults: []Fault{
				{Kind: "flush", At: 10 * time.Second, Client: -1, Server: 1},
				{Kind: "hole", At: 19 * time.Second, For: 30 * time.Second, Client: 0, Server: 2, Way: 2},
			},
		},
		"a part that is left, beside a member that is silent, may be of a hold under another label": {
			Backend: "quorum", Servers: 3,
			Clients: []Party{
				party([]Op{
					{Call: "lock", Names: []int{0}, Hold: 4 * time.Second, Unlock: "live", Uses: Uses{Label: "x"}},
					{Call: "lock", Names: []int{0}, Hold: 4 * time.Second, Unlock: "live", Uses: Uses{Label: "y"}},
				}),
				party([]Op{{Pause: time.Second, Call: "inspect", Names: []int{0}}, {Pause: 5 * time.Second, Call: "inspect", Names: []int{0}}}),
			},
			Faults: []Fault{
				{Kind: "hole", At: 2 * time.Second, For: 30 * time.Second, Client: 1, Server: 0, Way: 2},
				{Kind: "hole", At: 3 * time.Second, For: 30 * time.Second, Client: 0, Server: 2, Way: 2},
			},
		},
		"a member whose answers are lost has renewed a hold that another has lost": {
			Backend: "quorum", Servers: 3, TTL: 3 * time.Second,
			Clients: []Party{{Hooks: "count", Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}}}}},
			Faults: []Fault{
				{Kind: "hole", At: 2 * time.Second, For: 10 * time.Second, Server: 2, Way: 1},
				{Kind: "flush", At: 3500 * ms, Client: -1, Server: 1},
			},
		},
		"a server that takes over ends a minimum hold by a clock that is ahead": {
			Replica: true, Lag: 10 * ms, TTL: 3 * time.Second, Skews: []time.Duration{-200 * ms, 200 * ms},
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, MinHold: 30 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 10 * time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "failover", At: 5 * time.Second, Client: -1, Server: 0}},
		},
		"what a question has sent that was given up comes to a server meanwhile": {
			Latency: 50 * ms,
			Clients: []Party{{Own: &own{PoolSize: 1}, Workers: [][]Op{{
				{Call: "tryrlock", Names: []int{0}, Unlock: "live"},
				{Pause: 45 * time.Second, Call: "inspect", Names: []int{0}, Wait: 20 * ms},
				{Pause: 10 * ms, Call: "tryrlock", Names: []int{0}, Unlock: "live"},
			}}}},
		},
		"who has asked nothing since a failover asks where the lock was": {
			Cluster: true, Replica: true, Lag: 10 * ms, TTL: time.Second,
			Clients: []Party{party([]Op{
				{Call: "rlock", Names: []int{0}, Unlock: "live"},
				{Pause: 6 * time.Second, Call: "rlock", Names: []int{0}, Unlock: "live"},
				{Pause: 48 * time.Second, Call: "rlock", Names: []int{0}, Unlock: "live"},
			})},
			Faults: []Fault{
				{Kind: "failover", At: 5 * time.Second, Client: -1, Server: homeOf(slotOf(lockKey(nameOf(0))))},
				{Kind: "failover", At: 12 * time.Second, Client: -1, Server: homeOf(slotOf(lockKey(nameOf(0))))},
			},
		},
		"who joins readers by a context that outlives a lease to read has the token of that": {
			Clients: []Party{
				party([]Op{{Call: "rlock", Names: []int{0}, MaxHold: time.Second, Hold: 2 * time.Second, Inside: []Op{{
					Pause: 2 * time.Second, Call: "rlock", Names: []int{0}, Wait: time.Second, Hold: 5 * time.Second, Unlock: "live",
					Foreign: &ForeignContext{Type: "early", Beyond: 20 * time.Second},
					Inside:  []Op{{Pause: 2 * time.Second, Call: "inspect", Names: []int{0}}},
				}}}}),
				party([]Op{{Call: "rlock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}}),
			},
		},
		"a call whose hook panics leaves the queue after it": {
			Seed: 1, // by which the first Waiting panics
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 20 * time.Second, Unlock: "live"}}),
				{Hooks: "panic", Workers: [][]Op{{
					{Call: "lock", Names: []int{0}, Wait: 20 * ms}, {Call: "lock", Names: []int{0}, Wait: time.Second},
				}}},
				party(slices.Repeat([]Op{{Pause: 200 * time.Microsecond, Call: "inspect", Names: []int{0}}}, 20)),
			},
		},
		"who leads says that its client is closed, and its context ends before it returns": {
			Clients: []Party{{Close: time.Second, Workers: [][]Op{{
				{Call: "lead", Names: []int{0}, Wait: 3 * time.Second, Uses: Uses{Ends: "cause"}, Inside: []Op{{Pause: 4 * time.Second, Call: "trylock", Names: []int{0}}}},
			}}}},
		},
		"a client of the program's own says its name and what its library is before it renews": {
			Latency: 65 * ms,
			Clients: []Party{{
				Own: &own{Protocol: 2, PoolSize: 1, Pool: &pool{Lifetime: 2 * time.Second, Idle: time.Second, Wait: 200 * ms}}, Hooks: "count",
				Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 6 * time.Second, Unlock: "live"}}},
			}},
		},
		"a queue that somebody copies to another lock lets nobody in at its own": {
			Seed: 9, Names: 2, TTL: time.Second,
			Clients: []Party{
				party([]Op{{Call: "lock", Names: []int{0}, Hold: 40 * time.Second, Unlock: "live"}}),
				party([]Op{{Call: "lock", Names: []int{1}, Hold: 30 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}),
				party([]Op{{Pause: time.Second, Call: "lock", Names: []int{1}, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "by-hand", At: 5 * time.Second, For: time.Second, Client: -1, Steps: copyToOther}},
		},
		"a reader has the token of a key that somebody has put back": {
			Seed: 1,
			Clients: []Party{
				party([]Op{{Call: "rlock", Names: []int{0}, Hold: 50 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 10 * time.Second, Call: "rlock", Names: []int{0}, Hold: 30 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 30 * time.Second, Call: "rlock", Names: []int{0}, Hold: time.Second, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "by-hand", At: 5 * time.Second, For: 20 * time.Second, Client: -1, Way: 2, Steps: renameAway}},
		},
		"a reader has the token of the key of another lock that somebody has copied": {
			Seed: 5, Names: 2,
			Clients: []Party{
				party([]Op{{Call: "rlock", Names: []int{0}, Hold: 50 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 3 * time.Second, Call: "rlock", Names: []int{1}, Hold: 50 * time.Second, Unlock: "live"}}),
				party([]Op{{Pause: 10 * time.Second, Call: "rlock", Names: []int{1}, Hold: time.Second, Unlock: "live"}}),
			},
			Faults: []Fault{{Kind: "by-hand", At: 5 * time.Second, Client: -1, Steps: copyToOther}},
		},
		"somebody's key that comes back with older data is taken away": {
			Clients: []Party{party(slices.Repeat([]Op{{Pause: time.Second, Call: "lock", Names: []int{0}, Unlock: "live"}}, 40))},
			Faults: []Fault{
				{Kind: "foreign", At: 5 * time.Second, For: 10 * time.Second, Client: -1},
				{Kind: "restart-old", At: 10 * time.Second, Size: 10 * time.Second, For: 100 * ms, Client: -1},
			},
		},
		"somebody's key that comes back at a member with older data is taken away": {
			Seed: 2, Backend: "quorum", Servers: 3,
			Clients: []Party{party([]Op{{Call: "lock", Names: []int{0}, Unlock: "live"}})},
			Faults: []Fault{
				{Kind: "foreign", At: 5 * time.Second, For: 10 * time.Second, Client: -1, Server: 1},
				{Kind: "restart-old", At: 10 * time.Second, Size: 10 * time.Second, For: 100 * ms, Client: -1, Server: 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.Backend, p.Servers, p.Latency = cmp.Or(p.Backend, "redis"), cmp.Or(p.Servers, 1), cmp.Or(p.Latency, ms)
			p.Names, p.TTL, p.Length = max(p.Names, 1), cmp.Or(p.TTL, 10*time.Second), length
			if r := Run(t, p); len(r.Violations) > 0 {
				t.Errorf("%v\n%s", r.Violations, r.Table(len(p.Clients)))
			}
		})
	}
}
