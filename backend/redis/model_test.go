package redis

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// A model is one lock as the protocol says it should be: what the scripts are
// compared with.
type model struct {
	key     string
	holder  string
	entries int64
	seq     int64
	expiry  int64
	token   int64
	rank    int64            // the last one given out
	broken  string           // the last exclusive holds that were
	readers map[string]int64 // expiry by id
	queue   map[string]int64 // rank by id
	alive   map[string]int64 // until when, by id
	dead    map[string]int64 // until when, by id

	g       int64
	listens map[string]bool // which clients have a subscription
	told    *[]string       // what those were told
	now, us int64
}

func newModel(key string, g int64, listens map[string]bool, told *[]string) *model {
	m := &model{key: key, g: g, listens: listens, told: told}
	m.wipe()
	return m
}

func (m *model) wipe() {
	m.holder, m.entries, m.seq, m.expiry, m.token, m.rank = "", 0, 0, 0, 0, 0
	m.broken = ""
	m.readers, m.queue = map[string]int64{}, map[string]int64{}
	m.alive, m.dead = map[string]int64{}, map[string]int64{}
}

func (m *model) at(us int64) { m.us, m.now = us, us/1000 }

func (m *model) tell(client, text string) {
	if m.listens[client] {
		*m.told = append(*m.told, text)
	}
}

func (m *model) free() { m.holder, m.entries, m.seq, m.expiry = "", 0, 0, 0 }

func (m *model) hold(id string, expiry int64) {
	m.holder, m.entries, m.seq, m.expiry = id, 1, 0, expiry
}

// next is the token of a grant to id, a new one no less than least: readers of one
// phase share theirs.
func (m *model) next(id string, least int64) int64 {
	if id[0] == 'r' && len(m.readers) > 0 && m.token > 0 {
		return m.token
	}
	return max(m.token+1, least)
}

func (m *model) open(id string) bool {
	return m.holder == "" && (id[0] == 'r' || len(m.readers) == 0)
}

func (m *model) admit(id string, expiry, least int64) {
	m.token = m.next(id, least)
	if id[0] == 'r' {
		m.readers[id] = expiry
	} else {
		m.hold(id, expiry)
	}
}

func (m *model) order() []string {
	return slices.SortedFunc(maps.Keys(m.queue), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.queue[a], m.queue[b]), cmp.Compare(a, b))
	})
}

func (m *model) dequeue(id string) {
	delete(m.queue, id)
	delete(m.alive, id)
}

func (m *model) settle() {
	if m.holder != "" && m.expiry <= m.now {
		m.free()
	}
	maps.DeleteFunc(m.readers, func(_ string, expiry int64) bool { return expiry <= m.now })
	silent := slices.SortedFunc(maps.Keys(m.alive), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.alive[a], m.alive[b]), cmp.Compare(a, b))
	})
	for _, id := range silent {
		if m.alive[id] <= m.now {
			m.dequeue(id)
			_, _, client := parseID(id)
			m.tell(client, "poll "+hintOf(id))
		}
	}
	type grant struct{ client, text string }
	var grants []grant
	for _, id := range m.order() {
		if !m.open(id) {
			break
		}
		m.dequeue(id)
		ttl, polls, client := parseID(id)
		if !polls && !m.listens[client] {
			continue
		}
		expiry := m.now + min(ttl, m.g)
		m.admit(id, expiry, m.us)
		if !polls {
			grants = append(grants, grant{client, fmt.Sprintf("%s %d %d %d", id, m.token, m.us, expiry)})
		}
	}
	for _, g := range grants {
		m.tell(g.client, fmt.Sprintf("%s %d %s", g.text, min(len(m.queue), 1), m.key))
	}
}

func parseID(id string) (ttl int64, polls bool, client string) {
	head, rest, _ := strings.Cut(id[1:], ":")
	head, polls = strings.CutSuffix(head, "p")
	ttl, _ = strconv.ParseInt(head, 10, 64)
	client, _, _ = strings.Cut(rest, ":")
	return ttl, polls, client
}

// rest is how long the last holder has.
func (m *model) rest() int64 {
	if m.holder != "" {
		return m.expiry - m.now
	}
	if len(m.readers) == 0 {
		return 0
	}
	return slices.Max(slices.Collect(maps.Values(m.readers))) - m.now
}

func (m *model) acquire(id string, ttl int64, mode, rank string) []any {
	return m.vote(id, ttl, mode, rank, 0)
}

func (m *model) vote(id string, ttl int64, mode, rank string, proposal int64) []any {
	m.settle()
	least := m.us
	if proposal <= m.us+backend.TokenLead.Microseconds() {
		least = max(m.us, proposal)
	}
	old, back := m.queue[id]
	switch {
	case m.holder == id:
		return m.granted(m.expiry)
	case m.readers[id] > 0:
		return m.granted(m.readers[id])
	case m.dead[id] > 0:
		return []any{"DEAD", m.us}
	case !back && mode == "p":
		return []any{"GONE", m.us}
	case !back:
		order, given := parseRank(rank)
		if m.open(id) && m.isFirst(order, given) {
			m.admit(id, m.now+ttl, least)
			return m.granted(m.now + ttl)
		}
		if mode == "t" {
			queued := int64(0)
			if strings.HasPrefix(id, "r") && len(m.readers) > 0 {
				queued = 1
			}
			return []any{"HELD", m.us, queued}
		}
		if !given {
			order = max(m.us, m.rank+1)
		}
		m.queue[id], old, m.rank = order, order, max(m.rank, order)
		if len(m.queue) == 1 {
			m.contended()
		}
	}
	size := int64(len(m.queue))
	poll := min(max(size*1000, 5000), 120000)
	m.alive[id] = m.now + 3*poll
	position := slices.Index(m.order(), id)
	pause := poll
	if position == 0 {
		pause = min(poll, m.rest()+5)
	}
	listens := int64(1)
	if _, polls, client := parseID(id); !polls && !m.listens[client] {
		listens = 0
	}
	return []any{"QUEUED", m.us, old, int64(position), pause, listens}
}

func (m *model) granted(expiry int64) []any {
	return []any{"GRANTED", m.us, m.token, expiry, int64(len(m.queue))}
}

func parseRank(rank string) (int64, bool) {
	n, err := strconv.ParseInt(rank, 10, 64)
	return n, err == nil
}

func (m *model) isFirst(order int64, given bool) bool {
	if len(m.queue) == 0 {
		return true
	}
	return given && order <= m.queue[m.order()[0]]
}

func (m *model) contended() {
	holders := slices.SortedFunc(maps.Keys(m.readers), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.readers[b], m.readers[a]), cmp.Compare(b, a))
	})
	if m.holder != "" {
		holders = []string{m.holder}
	}
	for _, id := range holders {
		_, _, client := parseID(id)
		m.tell(client, "contended "+hintOf(id))
	}
}

// hintOf is how an id is told of that is not to be known.
func hintOf(id string) string {
	open, _, found := cutLast(id, '.')
	if !found {
		open = id
	}
	return fmt.Sprintf("%s %x", open, sha1.Sum([]byte(id)))
}

func (m *model) release(id string, tomb bool, used int64) []any {
	status := "NOT_HELD"
	switch _, queued := m.queue[id]; {
	case m.holder == id:
		status = "OK"
		m.token = max(m.token, used)
		m.free()
	case m.readers[id] > 0:
		status = "OK"
		delete(m.readers, id)
	case queued:
		status = "LEFT"
		m.dequeue(id)
	}
	if tomb {
		maps.DeleteFunc(m.dead, func(_ string, until int64) bool { return until <= m.now })
		m.dead[id] = m.now + 120000
	}
	m.settle()
	return []any{status, m.watch()}
}

func (m *model) expire(id string, d, used int64) []any {
	status, left := "LOST", id+"!"
	switch {
	case m.holder == id && m.expiry > m.now:
		status, m.holder, m.expiry = "OK", left, m.now+d
		m.token = max(m.token, used)
	case m.readers[id] > m.now:
		status = "OK"
		delete(m.readers, id)
		m.readers[left] = m.now + d
	case m.holder == left && m.expiry > m.now, m.readers[left] > m.now:
		status = "OK"
	}
	m.settle()
	return []any{status, m.watch()}
}

// breakHolds ends the holds of a token, or the exclusive one that may have been handed on under
// it; 0 stands for that of whoever holds the lock.
func (m *model) breakHolds(token int64) []any {
	var ended []string
	greatest := m.token
	if m.holder != "" {
		greatest = max(m.token, m.expiry*1000-1)
	}
	if m.token > 0 && (token == 0 || token >= m.token && token <= greatest) {
		if m.holder != "" && m.expiry > m.now {
			ended = []string{m.holder}
			broken := strings.TrimSuffix(m.holder+" "+m.broken, " ")
			m.token, m.broken = greatest, broken[:min(len(broken), 1000)]
			m.free()
		} else if m.holder == "" {
			for id, expiry := range m.readers {
				if expiry > m.now {
					ended = append(ended, id)
				}
			}
			slices.SortFunc(ended, func(a, b string) int {
				return cmp.Or(cmp.Compare(m.readers[a], m.readers[b]), cmp.Compare(a, b))
			})
			if len(ended) > 0 {
				m.token++
			}
		}
	}
	if len(ended) > 0 {
		maps.DeleteFunc(m.dead, func(_ string, until int64) bool { return until <= m.now })
	}
	for _, id := range ended {
		delete(m.readers, id)
		m.dead[id] = m.now + 120000
		_, _, client := parseID(id)
		m.tell(client, "broken "+hintOf(id))
	}
	m.settle()
	return []any{int64(len(ended)), m.watch(), int64(0)}
}

// watch is when somebody has to look at the lock.
func (m *model) watch() int64 {
	if rest := m.rest(); len(m.queue) > 0 || rest > 0 && rest <= m.g {
		return min(rest, m.g) + 5
	}
	return 0
}

// renew returns the new expiry, negative if somebody waits. shared says that
// the hold may be one of a reader.
func (m *model) renew(id string, target int64, shared bool, used int64) (expiry int64) {
	switch {
	case m.holder == id && m.expiry > m.now:
		m.expiry = max(m.expiry, target)
		expiry = m.expiry
	case shared && m.holder == "" && m.readers[id] > m.now:
		m.readers[id] = max(m.readers[id], target)
		expiry = m.readers[id]
	case slices.Contains(strings.Fields(m.broken), id), shared && m.dead[id] > 0:
		return broken
	default:
		return 0
	}
	m.token = max(m.token, used)
	if len(m.queue) > 0 {
		return -expiry
	}
	return expiry
}

func (m *model) enter(id string, ttl, entries, seq int64) []any {
	switch {
	case m.holder == id && m.expiry > m.now:
		m.expiry = max(m.expiry, m.now+ttl)
		if seq > m.seq {
			m.entries, m.seq = entries, seq
		}
		return []any{m.expiry, m.us}
	case m.holder == "" && m.readers[id] > m.now:
		m.readers[id] = max(m.readers[id], m.now+ttl)
		return []any{m.readers[id], m.us}
	}
	return []any{int64(0), m.us}
}

func (m *model) downgrade(id string, ttl, used int64) []any {
	status := "LOST"
	switch {
	case m.holder == id && m.expiry > m.now:
		status = "OK"
		expiry := max(m.expiry, m.now+ttl)
		m.token = max(m.token, used)
		m.free()
		m.readers[id] = expiry
	case m.readers[id] > m.now:
		status = "OK"
	}
	m.settle()
	return []any{status, m.watch()}
}

func (m *model) check() []any {
	m.settle()
	if order := m.order(); len(order) > 0 {
		_, _, client := parseID(order[0])
		m.tell(client, "poll "+hintOf(order[0]))
	}
	if m.rest() > m.g {
		return []any{"OK", int64(0)}
	}
	return []any{"OK", m.watch()}
}

// silence ends the liveness of one that waits.
func (m *model) silence(id string) {
	if _, ok := m.alive[id]; ok {
		m.alive[id] = 1
	}
}
