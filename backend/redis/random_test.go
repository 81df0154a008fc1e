package redis

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

var (
	randomCalls = flag.Int("redis.calls", 30_000, "script calls of TestScriptsAgainstModel")
	randomSeed  = flag.Uint64("redis.seed", 0, "seed of TestScriptsAgainstModel; 0 draws one")
)

// dumpScript returns everything there is of a lock, with the time to live of
// each key.
var dumpScript = rawScript(`
local out = {redis.call('HGETALL', KEYS[1])}
for i = 2, 5 do
  out[i] = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
end
for i = 1, 5 do
  out[5 + i] = redis.call('PTTL', KEYS[i])
end
return out`)

// A trial drives the scripts on a server and the model side by side.
type trial struct {
	t       *testing.T
	rnd     *rand.Rand
	client  *redis.Client
	names   []string
	locks   []*model
	told    []string
	ids     [][]string // by lock, of which the next calls choose
	past    []step     // that may be repeated
	nextID  int
	highest []int64 // token, by lock
	clock   int64   // µs
}

// A step is one script call, as it is sent and as the model is told.
type step struct {
	lock    int
	us      int64 // when it runs, by the clock of the trial
	script  *script
	keys    []any
	args    []any
	settles bool
	unless  any // the reply of a script that does nothing
	model   func() []any
	others  []step // with other locks, by the same call
}

// all is the steps of one call.
func (s step) all() []step { return append([]step{s}, s.others...) }

// command is the call.
func (s step) command() []any {
	var keys, args []any
	for _, one := range s.all() {
		keys, args = append(keys, one.keys...), append(args, one.args...)
	}
	return s.script.call(keys, args...)
}

// replies are those to each of the steps.
func (s step) replies(reply any) []any {
	if len(s.others) == 0 {
		return []any{reply}
	}
	return reply.([]any)
}

const (
	trialLocks = 3
	trialG     = 15 // ms
	trialSlack = 20 // ms
)

// The scripts as they are but for three things: their time is that of the trial, a
// grant that nobody confirms is over soon, and keys have to be kept longer often.
var (
	trialGrab     = trialScript(grabScript)
	trialGrabVote = trialScript(grabVoteScript)
	trialDrop     = trialScript(dropScript)
	trialAcquire  = trialScript(acquireScript)
	trialVote     = trialScript(voteScript)
	trialRelease  = trialScript(releaseScript)
	trialRenew    = trialScript(renewScript)
	trialEnter    = trialScript(enterScript)
	trialConvert  = trialScript(convertScript)
	trialCheck    = trialScript(checkScript)
	trialBreak    = rawScript(strings.Replace(trialScript(breakScript).source,
		"local token = tonumber(ARGV[1])", "local token = ARGV[1] == '0' and t or tonumber(ARGV[1])", 1))
)

const (
	clockKey = "clock of TestScriptsAgainstModel"
	sinceKey = "boot of TestScriptsAgainstModel"
)

func trialScript(s *script) *script {
	clock := fmt.Sprintf("redis.call('HMGET', '%s', 's', 'us')", clockKey)
	return rawScript(strings.NewReplacer(
		"redis.call('TIME')", clock,
		"local g = 5000", fmt.Sprintf("local g = %d", trialG),
		"slack = 600000, 60000", fmt.Sprintf("slack = 600000, %d", trialSlack),
	).Replace(s.source))
}

func TestScriptsAgainstModel(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-redis.seed=%d", seed)
	tr := &trial{
		t:      t,
		rnd:    rand.New(rand.NewPCG(seed, 0)),
		client: plainClient(t, shared),
		clock:  time.Now().UnixMicro(),
	}
	loadAll(t, tr.client)
	must[any](t)(tr.client.HSet(t.Context(), sinceKey, "since", 1).Result())
	live := []string{fmt.Sprintf("a%x", seed), fmt.Sprintf("b%x", seed)}
	heard := tr.listen(live)
	listens := map[string]bool{live[0]: true, live[1]: true}
	for i := range trialLocks {
		name := fmt.Sprintf("%s/%d/%d", t.Name(), seed, i)
		tr.names = append(tr.names, name)
		tr.locks = append(tr.locks, newModel(mainKey(name), trialG, listens, &tr.told))
		tr.ids = append(tr.ids, nil)
	}
	tr.highest = make([]int64, trialLocks)
	clients := append(live, "deaf")

	const burst = 50
	for done := 0; done < *randomCalls && !t.Failed(); done += burst {
		tr.run(tr.plan(burst, clients))
	}
	for i, want := range tr.told {
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("message %d is %q, want %q", i, got, want)
			}
		case <-time.After(limit):
			t.Fatalf("message %d has not come: %q", i, want)
		}
	}
}

// listen collects what the clients are told.
func (tr *trial) listen(clients []string) <-chan string {
	ps := tr.client.Subscribe(context.Background())
	tr.t.Cleanup(func() { _ = ps.Close() })
	heard := make(chan string, 1<<20)
	for _, c := range clients {
		must[any](tr.t)(nil, ps.Subscribe(context.Background(), channelPrefix+c))
		must[any](tr.t)(ps.ReceiveTimeout(context.Background(), limit))
	}
	go func() {
		for {
			m, err := ps.ReceiveTimeout(context.Background(), 0)
			if err != nil {
				return
			}
			if m, ok := m.(*redis.Message); ok {
				heard <- m.Payload
			}
		}
	}()
	return heard
}

// plan draws the next n calls. Some are repeated, some come again much later.
func (tr *trial) plan(n int, clients []string) []step {
	steps := make([]step, 0, n)
	add := func(s step) {
		tr.advance()
		s.us = tr.clock
		steps = append(steps, s)
	}
	for len(steps) < n {
		s := tr.draw(clients)
		add(s)
		tr.past = append(tr.past, s)
		switch tr.rnd.IntN(12) {
		case 0:
			add(s)
		case 1:
			add(tr.past[tr.rnd.IntN(len(tr.past))])
		}
	}
	tr.past = tr.past[max(0, len(tr.past)-100):]
	return steps
}

// advance moves the clock on, mostly a little. Now and then leases run out, and
// in rare cases it steps back.
func (tr *trial) advance() {
	switch p := tr.rnd.IntN(1000); {
	case p < 5:
		tr.clock -= tr.rnd.Int64N(10_000)
	case p < 20:
		tr.clock += tr.rnd.Int64N(20_000)
	case p < 22:
		tr.clock += tr.rnd.Int64N(60_000_000)
	default:
		tr.clock += tr.rnd.Int64N(300)
	}
}

func (tr *trial) draw(clients []string) step {
	lock := tr.rnd.IntN(trialLocks)
	ids := tr.ids[lock]
	if len(ids) == 0 || tr.rnd.IntN(4) == 0 {
		tr.nextID++
		mode := "wr"[tr.rnd.IntN(2)]
		polls := ""
		if tr.rnd.IntN(8) == 0 {
			polls = "p"
		}
		ttl := []int{2, 10, 40, 500}[tr.rnd.IntN(4)]
		id := fmt.Sprintf("%c%d%s:%s:%d", mode, ttl, polls, clients[tr.rnd.IntN(len(clients))], tr.nextID)
		id += "." + string(new(idSigner).appendProof(nil, "", []byte(id)))
		ids = append(ids, id)
		tr.ids[lock] = ids[max(0, len(ids)-10):]
	}
	id := ids[tr.rnd.IntN(len(ids))]
	if tr.rnd.IntN(2) == 0 {
		id = ids[len(ids)-1]
	}
	return tr.call(lock, id)
}

// call draws what to do with id.
func (tr *trial) call(lock int, id string) step {
	m := tr.locks[lock]
	k := key(m.key)
	ttl, _, _ := parseID(id)
	s := step{lock: lock, keys: k.args(5), settles: true}
	switch p := tr.rnd.IntN(100); {
	case p < 9 && id[0] == 'w':
		return tr.quick(p, lock, id)
	case p < 42:
		mode, rank := "wwwtp"[tr.rnd.IntN(5)], ""
		if tr.rnd.IntN(4) == 0 {
			rank = strconv.FormatInt(1e15+tr.rnd.Int64N(1000), 10)
		}
		s.script, s.args = trialAcquire, []any{id, ttl, string(mode), rank}
		s.model = func() []any { return m.acquire(id, ttl, string(mode), rank) }
		if tr.rnd.IntN(4) == 0 {
			token, lead := tr.proposal()
			s.keys = append(s.keys, sinceKey)
			s.script, s.args = trialVote, append(s.args, 0, token, lead)
			s.model = func() []any { return m.vote(id, ttl, string(mode), rank, token) }
		}
	case p < 46:
		return tr.releases(lock, id)
	case p < 49:
		d, used := tr.rnd.Int64N(60), tr.used()
		s.script, s.args = trialConvert, []any{id, "expiring", d, used}
		s.model = func() []any { return m.expire(id, d, used) }
	case p < 51:
		token := tr.rnd.Int64N(4) / 3 * tr.clock
		s.script, s.args = trialBreak, []any{token}
		s.model = func() []any { return m.breakHolds(token) }
	case p < 68:
		tomb := tr.rnd.IntN(6) == 0
		mark := 0
		if tomb {
			mark = 1
		}
		used := tr.used()
		s.script, s.args = trialRelease, []any{id, mark}
		if used > 0 {
			s.args = append(s.args, used)
		}
		s.model = func() []any { return m.release(id, tomb, used) }
	case p < 77:
		return tr.renewal(lock, id)
	case p < 84:
		entries, seq := tr.rnd.Int64N(5)+1, tr.rnd.Int64N(20)
		s.settles, s.keys = false, k.args(2)
		s.script, s.args = trialEnter, []any{id, ttl, entries, seq}
		s.model = func() []any { return m.enter(id, ttl, entries, seq) }
	case p < 90:
		used := tr.used()
		s.script, s.args = trialConvert, []any{id, "shared", ttl, used}
		s.model = func() []any { return m.downgrade(id, ttl, used) }
	case p < 95:
		s.script, s.args = trialCheck, nil
		s.model = m.check
	case p < 99:
		s.settles = false
		s.script, s.args = silenceScript, []any{id}
		s.model = func() []any { m.silence(id); return []any{"OK"} }
	default:
		s.settles = false
		s.script, s.args = wipeScript, nil
		s.model = func() []any { m.wipe(); return []any{"OK"} }
	}
	return s
}

// quick draws a step for a lock that may be free, or held by nobody else, and
// others that are the same for others.
func (tr *trial) quick(p, lock int, id string) step {
	s := tr.quickOne(p, lock, id)
	for other := range trialLocks {
		ids := tr.ids[other]
		if other == lock || len(ids) == 0 || tr.rnd.IntN(2) == 0 {
			continue
		}
		if id := ids[tr.rnd.IntN(len(ids))]; id[0] == 'w' {
			s.others = append(s.others, tr.quickOne(p, other, id))
		}
	}
	return s
}

func (tr *trial) quickOne(p, lock int, id string) step {
	m := tr.locks[lock]
	s := step{lock: lock, keys: key(m.key).args(1), settles: true}
	ttl, _, _ := parseID(id)
	switch {
	case p < 3:
		s.script, s.args, s.unless = trialGrab, []any{id, ttl}, int64(0)
		s.model = func() []any { return m.acquire(id, ttl, "t", "") }
	case p < 6:
		token, lead := tr.proposal()
		s.keys = append(s.keys, sinceKey)
		s.script, s.args, s.unless = trialGrabVote, []any{id, ttl, 0, token, lead}, int64(0)
		s.model = func() []any { return m.vote(id, ttl, "t", "", token) }
	default:
		s.script, s.args, s.unless = trialDrop, []any{id}, int64(-1)
		s.model = func() []any { return m.release(id, false, 0) }
	}
	return s
}

// releases draws a step that releases id together with ids of other locks.
func (tr *trial) releases(lock int, id string) step {
	one := func(lock int, id string) step {
		m, tomb, used := tr.locks[lock], tr.rnd.IntN(6) == 0, tr.used()
		s := step{lock: lock, keys: key(m.key).args(5), settles: true, script: trialRelease}
		s.args = []any{id, 0, ""}
		if tomb {
			s.args[1] = 1
		}
		if used > 0 {
			s.args[2] = used
		}
		s.model = func() []any { return m.release(id, tomb, used) }
		return s
	}
	s := one(lock, id)
	for other, ids := range tr.ids {
		if other != lock && len(ids) > 0 && tr.rnd.IntN(2) == 0 {
			s.others = append(s.others, one(other, ids[tr.rnd.IntN(len(ids))]))
		}
	}
	return s
}

// proposal draws the token that a vote proposes, and how far it may be ahead.
func (tr *trial) proposal() (token, lead int64) {
	lead = backend.TokenLead.Microseconds()
	return tr.clock + tr.rnd.Int64N(4*lead) - 2*lead, lead
}

// used draws the last token that a holder gave out by itself, or none.
func (tr *trial) used() int64 {
	if tr.rnd.IntN(3) > 0 {
		return 0
	}
	return tr.clock + 100 - tr.rnd.Int64N(500) // more than the clock shows if that has stepped back
}

// renewal renews id together with ids of other locks.
func (tr *trial) renewal(lock int, id string) step {
	shared := tr.rnd.IntN(2) == 0
	life, _, _ := parseID(id)
	till := int64(0)
	if tr.rnd.IntN(4) == 0 {
		till = tr.clock/1000 + tr.rnd.Int64N(50)
	}
	var part []*backend.Hold
	var models []*model
	add := func(i int, id string) {
		ttl, _, _ := parseID(id)
		h := &backend.Hold{Request: backend.Request{Name: tr.names[i], TTL: time.Duration(ttl) * time.Millisecond}}
		s := &holdState{id: id, hold: h}
		s.used.Store(uint64(tr.used()))
		s.shared.Store(shared)
		h.State = s
		part = append(part, h)
		models = append(models, tr.locks[i])
	}
	add(lock, id)
	for i, ids := range tr.ids {
		if i != lock && len(ids) > 0 {
			add(i, ids[tr.rnd.IntN(len(ids))])
		}
	}
	call := renewCall(part, till)
	last := firstKey + call[firstKey-1].(int)
	return step{lock: lock, script: trialRenew, keys: call[firstKey:last], args: call[last:], model: func() []any {
		us := tr.locks[lock].us
		target := us/1000 + life
		if till > 0 {
			target = till
		}
		out := []any{us, target}
		for i, h := range part {
			s := stateOf(h)
			if expiry := models[i].renew(s.id, target, shared, int64(s.used.Load())); expiry != target {
				out = append(out, int64(i+1), expiry)
			}
		}
		return out
	}}
}

// silenceScript makes one that waits look as if it had not been heard of for
// long.
var silenceScript = rawScript(`
if redis.call('ZSCORE', KEYS[4], ARGV[1]) then
  redis.call('ZADD', KEYS[4], 1, ARGV[1])
  redis.call('HSET', KEYS[1], 'a', 1)
end
return {'OK'}`)

// wipeScript loses a lock's data.
var wipeScript = rawScript(`
redis.call('DEL', unpack(KEYS))
return {'OK'}`)

func loadAll(t *testing.T, c *redis.Client) {
	for _, s := range []*script{
		trialGrab, trialGrabVote, trialDrop, trialAcquire, trialVote, trialRelease, trialConvert, trialRenew, trialEnter, trialCheck, trialBreak,
		dumpScript, silenceScript, wipeScript,
	} {
		must[string](t)(c.ScriptLoad(context.Background(), s.source).Result())
	}
}

// run sends the steps and a dump after each as one pipeline, then compares.
func (tr *trial) run(steps []step) {
	ctx := context.Background()
	pipe := tr.client.Pipeline()
	replies := make([]*redis.Cmd, len(steps))
	dumps := make([][]*redis.Cmd, len(steps))
	for i, s := range steps {
		_ = pipe.HSet(ctx, clockKey, "s", s.us/1e6, "us", s.us%1e6)
		replies[i] = redis.NewCmd(ctx, s.command()...)
		_ = pipe.Process(ctx, replies[i])
		for _, one := range s.all() {
			dump := redis.NewCmd(ctx, dumpScript.call(key(tr.locks[one.lock].key).args(5))...)
			_ = pipe.Process(ctx, dump)
			dumps[i] = append(dumps[i], dump)
		}
	}
	_, _ = pipe.Exec(ctx)
	for i, s := range steps {
		reply, err := replies[i].Result()
		if err != nil {
			tr.t.Fatal(err, s.args)
		}
		for _, m := range tr.locks {
			m.at(s.us)
		}
		for j, reply := range s.replies(reply) {
			one := s.all()[j]
			one.us = s.us
			tr.check(one, reply, must[[]any](tr.t)(dumps[i][j].Slice()))
		}
	}
}

// check checks a reply, and what there is of the lock then, against the model.
func (tr *trial) check(s step, reply any, state []any) {
	tr.t.Helper()
	if reply == s.unless {
		s.settles = false
		tr.compare(s, state)
		return
	}
	reply = s.whole(reply)
	if want := s.model(); !reflect.DeepEqual(reply, want) {
		tr.t.Fatalf("%v\nsaid  %v\nmodel %v\nwhich is now %+v", s.args, reply, want, *tr.locks[s.lock])
	}
	tr.compare(s, state)
}

// whole is a reply with all that it leaves unsaid.
func (s step) whole(reply any) []any {
	n, plain := reply.(int64)
	switch {
	case !plain:
		return reply.([]any)
	case s.script == trialAcquire, s.script == trialVote, s.script == trialGrab, s.script == trialGrabVote:
		ttl, _, _ := parseID(s.args[0].(string))
		return []any{"GRANTED", s.us, n, s.us/1000 + ttl, int64(0)}
	}
	return []any{"OK", n}
}

// compare checks the server's state against the model, and what must hold of
// it whatever the model says.
func (tr *trial) compare(s step, state []any) {
	tr.t.Helper()
	m := tr.locks[s.lock]
	hash := pairs(state[0])
	tr.notes(s, hash, state)
	want := map[string]string{}
	if m.holder != "" {
		want["o"], want["n"], want["e"] = m.holder, fmt.Sprint(m.entries), fmt.Sprint(m.expiry)
	}
	if hash["s"] == "0" {
		delete(hash, "s")
	}
	if m.seq > 0 {
		want["s"] = fmt.Sprint(m.seq)
	}
	if m.broken != "" {
		want["x"] = m.broken
	}
	if m.token > 0 {
		want["t"] = fmt.Sprint(m.token)
	}
	if !maps.Equal(hash, want) {
		tr.t.Fatalf("%v: S is %v, want %v", s.args, hash, want)
	}
	for i, set := range []map[string]int64{m.readers, m.queue, m.alive, m.dead} {
		if got := numbers(state[1+i]); !maps.Equal(got, set) {
			tr.t.Fatalf("%v: %s is %v, want %v", s.args, suffixes[1+i], got, set)
		}
	}
	for i := range suffixes {
		if state[5+i].(int64) == -1 {
			tr.t.Fatalf("%v: the key %q has no time to live", s.args, suffixes[i])
		}
	}
	tr.invariants(s, hash, state)
}

// notes checks, and takes from the hash, what the scripts keep in it to save
// themselves a look at the other keys.
func (tr *trial) notes(s step, hash map[string]string, state []any) {
	tr.t.Helper()
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(hash[field], 10, 64)
		return n
	}
	readers, alive := numbers(state[1]), numbers(state[3])
	if hash["d"] != "" && hash["b"] == "" {
		for i, suffix := range suffixes[1:] {
			if len(state[1+i].([]any)) > 0 {
				tr.t.Fatalf("%v: nothing is noted in %v, but there is %s", s.args, hash, suffix)
			}
		}
	}
	last := number("e")
	for _, e := range readers {
		last = max(last, e)
	}
	if last > 0 && number("d") < last+defaultKeep.Milliseconds() {
		tr.t.Fatalf("%v: %v is kept too short for a lease until %d", s.args, hash, last)
	}
	for id, until := range alive {
		if hash["a"] != "" && number("a") > until {
			tr.t.Fatalf("%v: %v looks at the queue too late for %s, alive until %d", s.args, hash, id, until)
		}
	}
	for _, field := range []string{"a", "b", "d", "l"} {
		delete(hash, field)
	}
}

func (tr *trial) invariants(s step, hash map[string]string, state []any) {
	tr.t.Helper()
	now := s.us / 1000
	expiry, _ := strconv.ParseInt(hash["e"], 10, 64)
	writer := hash["o"] != "" && expiry > now
	readers := 0
	for _, e := range numbers(state[1]) {
		if e > now {
			readers++
		}
	}
	if writer && readers > 0 {
		tr.t.Fatalf("%v: a writer beside %d readers", s.args, readers)
	}
	if queue := state[2].([]any); s.settles && len(queue) > 0 && !writer {
		if head := queue[0].(string); readers == 0 || head[0] == 'r' {
			tr.t.Fatalf("%v: %s waits for a lock that it could have", s.args, head)
		}
	}
	token, _ := strconv.ParseInt(hash["t"], 10, 64)
	if s.script == wipeScript { // now the clock alone keeps the order, which steps back
		tr.highest[s.lock] = 0
	}
	if token > 0 {
		if token < tr.highest[s.lock] {
			tr.t.Fatalf("%v: the token fell from %d to %d", s.args, tr.highest[s.lock], token)
		}
		tr.highest[s.lock] = token
	}
}

func pairs(v any) map[string]string {
	out := map[string]string{}
	for p := range slices.Chunk(v.([]any), 2) {
		out[p[0].(string)] = p[1].(string)
	}
	return out
}

func numbers(v any) map[string]int64 {
	out := map[string]int64{}
	for k, text := range pairs(v) {
		f, _ := strconv.ParseFloat(text, 64)
		out[k] = int64(f)
	}
	return out
}

// TestScriptsSuitLaterLua: servers that are not Redis run Lua 5.4, which has no unpack, and
// for %d no number with a fraction.
func TestScriptsSuitLaterLua(t *testing.T) {
	bare := regexp.MustCompile(`[^.]\bunpack\(`)
	fraction := regexp.MustCompile(`%\d*d'[^\n]*[ (]\w+ / `)
	for _, s := range []*script{
		grabScript, grabVoteScript, dropScript, acquireScript, voteScript, releaseScript, convertScript, renewScript, enterScript, checkScript, breakScript, inspectScript,
	} {
		for _, trap := range []*regexp.Regexp{bare, fraction} {
			if found := trap.FindString(s.source); found != "" {
				t.Errorf("Lua 5.4 does not run %q", found)
			}
		}
	}
}

func TestScriptsHoldNoForeignText(t *testing.T) {
	for _, s := range []*script{
		grabScript, grabVoteScript, dropScript, acquireScript, voteScript, releaseScript, convertScript, renewScript, enterScript, checkScript, breakScript, inspectScript,
	} {
		if strings.Contains(s.source, "-- include") {
			t.Errorf("an include is left over:\n%s", s.source)
		}
	}
}
