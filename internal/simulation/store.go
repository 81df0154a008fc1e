package simulation

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
)

// A store is the data of a server: hashes and sorted sets by their keys.
type store struct {
	values  map[string]*value
	now     int64 // ms, by the clock of the server
	follows bool  // it deletes no key whose time is over: its master does
	same    bool  // the last ZADD has changed nothing
}

// A value is what a key has: a hash, or a sorted set.
type value struct {
	hash map[string]string
	set  []member // by score, then by name; nil where it is a hash
	text bool     // it is neither
	end  int64    // ms by the clock of the server; 0: never
	mark string   // of a text: which of those that somebody else has had in a key
}

type member struct {
	score float64
	name  string
}

func newStore() *store { return &store{values: make(map[string]*value)} }

// copy is another store with the same data.
func (s *store) copy() *store {
	c := &store{values: make(map[string]*value, len(s.values)), now: s.now}
	for k, v := range s.values {
		c.values[k] = v.copy()
	}
	return c
}

func (v *value) copy() *value {
	return &value{hash: maps.Clone(v.hash), set: slices.Clone(v.set), text: v.text, end: v.end, mark: v.mark}
}

// get returns the value of a key, nil if there is none.
func (s *store) get(key string) *value {
	v := s.values[key]
	if v != nil && v.end != 0 && v.end <= s.now {
		if !s.follows {
			delete(s.values, key)
		}
		return nil
	}
	return v
}

// hash returns the hash of a key, which may be nil.
func (s *store) hash(key string) (map[string]string, error) {
	v := s.get(key)
	if v == nil {
		return nil, nil
	}
	if v.hash == nil {
		return nil, errWrongType
	}
	return v.hash, nil
}

// set returns the value of a key that is a sorted set, or nil.
func (s *store) set(key string) (*value, error) {
	v := s.get(key)
	if v != nil && (v.hash != nil || v.text) {
		return nil, errWrongType
	}
	return v, nil
}

// tidy removes a key that has nothing any more.
func (s *store) tidy(key string, v *value) {
	if len(v.hash) == 0 && len(v.set) == 0 {
		delete(s.values, key)
	}
}

func byScore(a, b member) int {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
}

func (v *value) index(name string) int {
	return slices.IndexFunc(v.set, func(m member) bool { return m.name == name })
}

// add reports whether name is new.
func (v *value) add(score float64, name string, onlyNew bool) (added, changed bool) {
	i := v.index(name)
	switch {
	case i >= 0 && (onlyNew || v.set[i].score == score):
		return false, false
	case i >= 0:
		v.set = slices.Delete(v.set, i, i+1)
	}
	m := member{score, name}
	at, _ := slices.BinarySearchFunc(v.set, m, byScore)
	v.set = slices.Insert(v.set, at, m)
	return i < 0, true
}

// A border is one end of a range of scores.
type border struct {
	score float64
	open  bool
}

func parseBorder(text string) (border, error) {
	b := border{}
	if text != "" && text[0] == '(' {
		b.open, text = true, text[1:]
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) {
		return b, replyError("ERR min or max is not a float")
	}
	b.score = f
	return b, nil
}

// between returns the indexes of the first member with such a score, and of the first
// after them.
func (v *value) between(from, to border) (int, int) {
	i := sort.Search(len(v.set), func(i int) bool {
		return v.set[i].score > from.score || !from.open && v.set[i].score == from.score
	})
	j := sort.Search(len(v.set), func(j int) bool {
		return v.set[j].score > to.score || to.open && v.set[j].score == to.score
	})
	return i, max(i, j)
}

// formatScore writes a score as Redis does.
func formatScore(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}
