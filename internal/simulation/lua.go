package simulation

import (
	"crypto/sha1"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A status is a reply of one word, such as OK.
type status string

// An interpreter runs the scripts of one server, one at a time.
type interpreter struct {
	state   *lua.LState
	call    func(args []string) (any, error) // has the server execute a command
	found   map[question][]lua.LValue        // what string.match has found
	error   error                            // with which a command has ended the script
	digest  string                           // of the script
	ancient bool                             // it is that of Redis 6.2
}

// compiled are all scripts of this process, by their digest: they do not change.
var compiled sync.Map

func sha(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

func compileScript(digest, source string) (*lua.FunctionProto, error) {
	if p, found := compiled.Load(digest); found {
		return p.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return nil, err
	}
	p, err := lua.Compile(chunk, "user_script")
	if err == nil {
		p.IsVarArg &^= lua.VarArgNeedsArg // no script uses the table of arguments that Lua 5.0 had
		compiled.Store(digest, p)
	}
	return p, err
}

// idle are interpreters of servers that are gone.
var idle struct {
	mu  sync.Mutex
	all []*interpreter
}

// interpret returns an interpreter whose scripts have call execute their commands.
func interpret(call func(args []string) (any, error)) *interpreter {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	n := len(idle.all)
	if n == 0 {
		idle.all, n = append(idle.all, newInterpreter()), 1
	}
	in := idle.all[n-1]
	idle.all = idle.all[:n-1]
	in.call = call
	return in
}

func (in *interpreter) release() {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	in.call, in.ancient = nil, false
	clear(in.found)
	idle.all = append(idle.all, in)
}

func newInterpreter() *interpreter {
	in := &interpreter{state: lua.NewState(lua.Options{SkipOpenLibs: true}), found: make(map[question][]lua.LValue)}
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		in.state.Push(in.state.NewFunction(open))
		in.state.Call(0, 0)
	}
	redis := in.state.NewTable()
	in.state.SetFuncs(redis, map[string]lua.LGFunction{
		"call":    func(l *lua.LState) int { return in.command(l, true) },
		"pcall":   func(l *lua.LState) int { return in.command(l, false) },
		"sha1hex": func(l *lua.LState) int { l.Push(lua.LString(sha(l.CheckString(1)))); return 1 },
	})
	in.state.SetGlobal("redis", redis)
	library := in.state.GetGlobal("string").(*lua.LTable)
	match := library.RawGetString("match").(*lua.LFunction).GFunction
	library.RawSetString("match", in.state.NewFunction(func(l *lua.LState) int { return in.match(l, match) }))
	format := library.RawGetString("format").(*lua.LFunction).GFunction
	library.RawSetString("format", in.state.NewFunction(func(l *lua.LState) int { return formatted(l, format) }))
	return in
}

// A question is one to string.match.
type question struct{ text, pattern string }

// match is string.match, with what it has found kept: scripts look at the same ids again and
// again, and a pattern is compiled each time.
func (in *interpreter) match(l *lua.LState, match lua.LGFunction) int {
	q := question{l.CheckString(1), l.CheckString(2)}
	if l.GetTop() > 2 { // from a place in the text on
		return match(l)
	}
	if all, known := in.found[q]; known {
		for _, v := range all {
			l.Push(v)
		}
		return len(all)
	}
	n := match(l)
	all := make([]lua.LValue, n)
	for i := range all {
		all[i] = l.Get(i - n)
	}
	in.found[q] = all
	return n
}

// formatted is string.format, with a short way for a number without a fraction: scripts write
// nearly all of theirs so.
func formatted(l *lua.LState, format lua.LGFunction) int {
	n, isNumber := l.Get(2).(lua.LNumber)
	if !isNumber || l.CheckString(1) != "%.0f" {
		return format(l)
	}
	l.Push(lua.LString(strconv.FormatFloat(float64(n), 'f', 0, 64)))
	return 1
}

// run runs a script with that digest, and returns its reply.
func (in *interpreter) run(digest, source string, keys, args []string) (any, error) {
	p, err := compileScript(digest, source)
	if err != nil {
		return nil, replyError("ERR Error compiling script: " + err.Error())
	}
	l := in.state
	l.SetGlobal("KEYS", stringTable(l, keys))
	l.SetGlobal("ARGV", stringTable(l, args))
	in.error, in.digest = nil, digest
	l.Push(l.NewFunctionFromProto(p))
	if err := l.PCall(0, 1, nil); err != nil {
		if in.error != nil {
			return nil, in.error
		}
		said, _, _ := strings.Cut(err.Error(), "\n") // and then where that was
		return nil, replyError("ERR Error running script: " + said)
	}
	v := l.Get(-1)
	l.Pop(1)
	return fromLua(v)
}

func stringTable(l *lua.LState, all []string) *lua.LTable {
	t := l.CreateTable(len(all), 0)
	for _, s := range all {
		t.Append(lua.LString(s))
	}
	return t
}

// command is redis.call and, if it may not fail, redis.pcall.
func (in *interpreter) command(l *lua.LState, fails bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch a := l.Get(i + 1).(type) {
		case lua.LNumber:
			args[i] = formatNumber(float64(a))
		case lua.LString:
			args[i] = string(a)
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	reply, err := in.call(args)
	if err != nil && in.ancient {
		err = in.quotes(l, err, fails)
	}
	switch {
	case err != nil && fails:
		in.error = err
		l.RaiseError("%s", err.Error())
	case err != nil:
		t := l.NewTable()
		t.RawSetString("err", lua.LString(err.Error()))
		l.Push(t)
	default:
		l.Push(toLua(l, reply))
	}
	return 1
}

// quotes is an error in the words of Redis 6.2, which are others where it ends the script.
func (in *interpreter) quotes(l *lua.LState, err error, ends bool) error {
	line := strings.TrimPrefix(strings.TrimRight(l.Where(1), ": "), "user_script:")
	said := inOldWords(err, line)
	if ends {
		return endsInOldWords(in.digest, said, line)
	}
	return replyError(said)
}

func formatNumber(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case status:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(r))
		return t
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, e := range r {
			t.Append(toLua(l, e))
		}
		return t
	}
	return lua.LFalse
}

// fromLua makes a reply of what a script returns.
func fromLua(v lua.LValue) (any, error) {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v), nil
	case lua.LString:
		return string(v), nil
	case lua.LBool:
		if v {
			return int64(1), nil
		}
	case *lua.LTable:
		if s := v.RawGetString("err"); s != lua.LNil {
			return nil, replyError(s.String())
		}
		if s := v.RawGetString("ok"); s != lua.LNil {
			return status(s.String()), nil
		}
		all := []any{}
		for i := 1; ; i++ {
			e := v.RawGetInt(i)
			if e == lua.LNil {
				return all, nil
			}
			r, err := fromLua(e)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return nil, nil
}
