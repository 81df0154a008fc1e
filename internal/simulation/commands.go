package simulation

import (
	"slices"
	"strconv"
	"strings"
)

// A replyError is the error that a command ends with.
type replyError string

func (e replyError) Error() string { return string(e) }

const (
	errWrongType = replyError("WRONGTYPE Operation against a key holding the wrong kind of value")
	errSyntax    = replyError("ERR syntax error")
	errNoInteger = replyError("ERR value is not an integer or out of range")
	errNoFloat   = replyError("ERR value is not a valid float")
)

// A command is one about data. It returns an integer, a text, a list of those, or nil.
type command struct {
	run    func(s *store, args []string) (any, error)
	least  int // arguments
	writes bool
	grows  bool // it may need memory
}

var commands = map[string]command{
	"HMGET":            {run: hmget, least: 2},
	"HGETALL":          {run: hgetall, least: 1},
	"ZCARD":            {run: zcard, least: 1},
	"ZSCORE":           {run: zscore, least: 2},
	"ZRANK":            {run: zrank, least: 2},
	"ZRANGE":           {run: zrange, least: 3},
	"ZREVRANGE":        {run: zrevrange, least: 3},
	"ZRANGEBYSCORE":    {run: zrangebyscore, least: 3},
	"EXISTS":           {run: exists, least: 1},
	"PTTL":             {run: pttl, least: 1},
	"TYPE":             {run: typeOf, least: 1},
	"HSET":             {run: hset, least: 3, writes: true, grows: true},
	"ZADD":             {run: zadd, least: 3, writes: true, grows: true},
	"HDEL":             {run: hdel, least: 2, writes: true},
	"ZREM":             {run: zrem, least: 2, writes: true},
	"ZREMRANGEBYSCORE": {run: zremrangebyscore, least: 3, writes: true},
	"PEXPIRE":          {run: pexpire, least: 2, writes: true},
	"PEXPIREAT":        {run: pexpireat, least: 2, writes: true},
	"DEL":              {run: del, least: 1, writes: true},
}

func (c command) call(s *store, name string, args []string) (any, error) {
	if len(args) < c.least {
		return nil, replyError("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	}
	return c.run(s, args)
}

func hmget(s *store, args []string) (any, error) {
	h, err := s.hash(args[0])
	if err != nil {
		return nil, err
	}
	all := make([]any, len(args)-1)
	for i, f := range args[1:] {
		if v, found := h[f]; found {
			all[i] = v
		}
	}
	return all, nil
}

func hgetall(s *store, args []string) (any, error) {
	h, err := s.hash(args[0])
	all := make([]any, 0, 2*len(h))
	for f, v := range h {
		all = append(all, f, v)
	}
	return all, err
}

func hset(s *store, args []string) (any, error) {
	if len(args)%2 == 0 {
		return nil, replyError("ERR wrong number of arguments for 'hset' command")
	}
	h, err := s.hash(args[0])
	if err != nil {
		return nil, err
	}
	if h == nil {
		h = make(map[string]string)
		s.values[args[0]] = &value{hash: h}
	}
	before := len(h)
	for pair := range slices.Chunk(args[1:], 2) {
		h[pair[0]] = pair[1]
	}
	return int64(len(h) - before), nil
}

func hdel(s *store, args []string) (any, error) {
	h, err := s.hash(args[0])
	if h == nil {
		return int64(0), err
	}
	before := len(h)
	for _, f := range args[1:] {
		delete(h, f)
	}
	s.tidy(args[0], s.values[args[0]])
	return int64(before - len(h)), nil
}

func zadd(s *store, args []string) (any, error) {
	key, pairs := args[0], args[1:]
	onlyNew := strings.EqualFold(pairs[0], "NX")
	if onlyNew {
		pairs = pairs[1:]
	}
	if len(pairs)%2 != 0 || len(pairs) == 0 {
		return nil, errSyntax
	}
	scores := make([]float64, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		f, err := strconv.ParseFloat(pair[0], 64)
		if err != nil {
			return nil, errNoFloat
		}
		scores = append(scores, f)
	}
	v, err := s.set(key)
	if err != nil {
		return nil, err
	}
	if v == nil {
		v = &value{}
		s.values[key] = v
	}
	n := int64(0)
	s.same = true
	for i, score := range scores {
		added, changed := v.add(score, pairs[2*i+1], onlyNew)
		if added {
			n++
		}
		s.same = s.same && !changed
	}
	return n, nil
}

func zrem(s *store, args []string) (any, error) {
	v, err := s.set(args[0])
	if v == nil {
		return int64(0), err
	}
	removed := int64(0)
	for _, name := range args[1:] {
		if i := v.index(name); i >= 0 {
			v.set = slices.Delete(v.set, i, i+1)
			removed++
		}
	}
	s.tidy(args[0], v)
	return removed, nil
}

func zcard(s *store, args []string) (any, error) {
	v, err := s.set(args[0])
	if v == nil {
		return int64(0), err
	}
	return int64(len(v.set)), nil
}

func zscore(s *store, args []string) (any, error) {
	v, err := s.set(args[0])
	if v == nil {
		return nil, err
	}
	if i := v.index(args[1]); i >= 0 {
		return formatScore(v.set[i].score), nil
	}
	return nil, nil
}

func zrank(s *store, args []string) (any, error) {
	v, err := s.set(args[0])
	if v == nil {
		return nil, err
	}
	if i := v.index(args[1]); i >= 0 {
		return int64(i), nil
	}
	return nil, nil
}

// list is what a range of members is replied as.
func list(members []member, scores bool) []any {
	all := make([]any, 0, 2*len(members))
	for _, m := range members {
		all = append(all, m.name)
		if scores {
			all = append(all, formatScore(m.score))
		}
	}
	return all
}

// withScores takes WITHSCORES away from options.
func withScores(options []string) (bool, []string) {
	if len(options) > 0 && strings.EqualFold(options[0], "WITHSCORES") {
		return true, options[1:]
	}
	return false, options
}

func zrange(s *store, args []string) (any, error) { return byIndex(s, args, false) }

func zrevrange(s *store, args []string) (any, error) { return byIndex(s, args, true) }

func byIndex(s *store, args []string, reverse bool) (any, error) {
	from, err := strconv.Atoi(args[1])
	to, err2 := strconv.Atoi(args[2])
	scores, rest := withScores(args[3:])
	switch {
	case err != nil || err2 != nil:
		return nil, errNoInteger
	case len(rest) > 0:
		return nil, errSyntax
	}
	v, err := s.set(args[0])
	if v == nil {
		return []any{}, err
	}
	members := v.set
	if reverse {
		members = slices.Clone(members)
		slices.Reverse(members)
	}
	n := len(members)
	if from < 0 {
		from = max(n+from, 0)
	}
	if to < 0 {
		to += n
	}
	to = min(to+1, n)
	if from >= to {
		return []any{}, nil
	}
	return list(members[from:to], scores), nil
}

func zrangebyscore(s *store, args []string) (any, error) {
	from, err := parseBorder(args[1])
	if err != nil {
		return nil, err
	}
	to, err := parseBorder(args[2])
	if err != nil {
		return nil, err
	}
	scores, rest := withScores(args[3:])
	offset, count := 0, -1
	if len(rest) == 3 && strings.EqualFold(rest[0], "LIMIT") {
		var err2 error
		offset, err = strconv.Atoi(rest[1])
		count, err2 = strconv.Atoi(rest[2])
		if err != nil || err2 != nil {
			return nil, errNoInteger
		}
	} else if len(rest) > 0 {
		return nil, errSyntax
	}
	v, err := s.set(args[0])
	if v == nil {
		return []any{}, err
	}
	i, j := v.between(from, to)
	i = min(i+max(offset, 0), j)
	if count >= 0 {
		j = min(j, i+count)
	}
	return list(v.set[i:j], scores), nil
}

func zremrangebyscore(s *store, args []string) (any, error) {
	from, err := parseBorder(args[1])
	if err != nil {
		return nil, err
	}
	to, err := parseBorder(args[2])
	if err != nil {
		return nil, err
	}
	v, err := s.set(args[0])
	if v == nil {
		return int64(0), err
	}
	i, j := v.between(from, to)
	v.set = slices.Delete(v.set, i, j)
	s.tidy(args[0], v)
	return int64(j - i), nil
}

func exists(s *store, args []string) (any, error) {
	n := int64(0)
	for _, k := range args {
		if s.get(k) != nil {
			n++
		}
	}
	return n, nil
}

func del(s *store, args []string) (any, error) {
	n := int64(0)
	for _, k := range args {
		if s.get(k) != nil {
			delete(s.values, k)
			n++
		}
	}
	return n, nil
}

func pexpire(s *store, args []string) (any, error) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return nil, errNoInteger
	}
	return s.expire(args[0], s.now+n), nil
}

func pexpireat(s *store, args []string) (any, error) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return nil, errNoInteger
	}
	return s.expire(args[0], n), nil
}

func (s *store) expire(key string, end int64) any {
	v := s.get(key)
	switch {
	case v == nil:
		return int64(0)
	case end <= s.now:
		delete(s.values, key)
	default:
		v.end = end
	}
	return int64(1)
}

func pttl(s *store, args []string) (any, error) {
	v := s.get(args[0])
	switch {
	case v == nil:
		return int64(-2), nil
	case v.end == 0:
		return int64(-1), nil
	}
	return v.end - s.now, nil
}

func typeOf(s *store, args []string) (any, error) {
	v := s.get(args[0])
	switch {
	case v == nil:
		return status("none"), nil
	case v.hash != nil:
		return status("hash"), nil
	case v.text:
		return status("string"), nil
	}
	return status("zset"), nil
}
