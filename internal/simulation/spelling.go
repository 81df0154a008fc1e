package simulation

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// spellings are what locks are called in a part of the plans: by what a key, a pattern, a channel or a
// message could take for its own, by bytes that a server does not allow for, and by long names.
var spellings = []string{
	"a/b", "a%2Fb", "a", "A", "a:q", "a:r", "{a}", "a}b", "{", "}", "*", "?[a-c]", "\\", "a b", " ", "+", "=", ".", "..",
	"!", "c:a", "boot", "probe:a", "ä", "日本", "\x00", "a\r\nb", "app/a", "app/", strings.Repeat("long/", 40),
}

// prefixes are those of clients. One that ends within the name of a lock leaves less of that.
var prefixes = []string{"", "", "app/", "a", "b{", "é:"}

// spells draws what locks are called, and the prefixes of clients. A part of the plans has
// prefixes and names of one letter.
func (g *generator) spells() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 63))}
	p := g.plan
	if !g.often(40) {
		return
	}
	letters := make([]string, p.Names)
	for i := range letters {
		letters[i] = nameOf(i)
	}
	if g.often(70) {
		first := pick(g.draw, 0, g.IntN(len(spellings))) // those that are alike are neighbours
		for i := range p.Names {
			p.Spelled = append(p.Spelled, spellings[(first+i)%len(spellings)])
		}
	}
	if g.often(50) {
		for i := range p.Clients {
			p.Clients[i].Prefix = pick(g.draw, prefixes...)
		}
	}
	if p.Cluster {
		g.resettle(letters)
	}
	g.each(func(op *Op) { op.Begins = g.IntN(4) })
}

// resettle has faults that were drawn for the nodes of some locks be at those of others.
func (g *generator) resettle(before []string) {
	p := g.plan
	for i := range p.Faults {
		f := &p.Faults[i]
		n := slices.IndexFunc(before, func(name string) bool { return homeOf(slotOf(lockKey(name))) == f.Server })
		if n >= 0 {
			f.Server = homeOf(slotOf(lockKey(p.fullName(g.IntN(len(p.Clients)), n))))
		}
	}
}

// spelling is what a lock is called, whoever asks for it.
func (p *Plan) spelling(n int) string {
	if n < len(p.Spelled) {
		return p.Spelled[n]
	}
	return nameOf(n)
}

// fullName is what a lock is called with the prefix of a client: for one that begins with that it is
// the same lock, and another for all else.
func (p *Plan) fullName(client, n int) string {
	name, prefix := p.spelling(n), p.Clients[client].Prefix
	if strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
		return name
	}
	return prefix + name
}

// allNames are those of all locks that a client may ask for.
func (p *Plan) allNames() []string {
	var all []string
	for n := range p.Names {
		if len(p.Clients) == 0 {
			all = append(all, p.spelling(n))
		}
		for c := range p.Clients {
			if name := p.fullName(c, n); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// localName is a name as its client knows it.
func (p *Plan) localName(client int, name string) string { return name[len(p.Clients[client].Prefix):] }

func (a *actor) local(name string) string { return a.w.plan.localName(a.c.index, name) }

func (a *actor) locals(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = a.local(name)
	}
	return all
}

const hexDigits = "0123456789ABCDEF"

// encode is how a name stands in a key.
func encode(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		alone := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_:@", c) >= 0
		if alone || c == '.' && i > 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

// decode is the name that stands so in a key.
func decode(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			c = byte(strings.IndexByte(hexDigits, text[i+1])<<4 | strings.IndexByte(hexDigits, text[i+2]))
			i += 2
		}
		b.WriteByte(c)
	}
	return b.String()
}
