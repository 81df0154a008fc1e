package backend

import (
	"errors"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// A URL is a parsed backend URL:
//
//	scheme://[user[:password]@]host[:port][,host[:port]...][/path][?parameters]
//
// It differs from net/url in that it takes a list of hosts, IPv6 ones too, and
// in that nothing about it ever prints the password: not its String, not the
// errors of ParseURL.
type URL struct {
	Scheme   string
	User     string
	Password Secret
	Hosts    []string // each as host, host:port or [ipv6]:port; may be empty
	Path     string   // decoded, with its leading slash if there is one
	Params   Params
}

// ParseURL splits raw. Its errors are ErrInvalidConfig and name the part that
// is wrong, never its text.
func ParseURL(raw string) (*URL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return nil, badURL("none is given: want scheme://host")
	case strings.TrimSpace(raw) != raw, strings.ContainsFunc(raw, unicode.IsControl):
		// A line end that comes with the file or the variable would name another lock.
		return nil, badURL("it has a line end or other white space too much: leave that out, or percent-encode it")
	case !ok || !validScheme(scheme):
		return nil, badURL("want scheme://host, or file:///directory")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	switch {
	case authority != "" && strings.Contains(tail, "@"):
		return nil, badURL("percent-encode /, ?, # in a password, and @ after the hosts")
	case strings.ContainsAny(tail, "@#"):
		return nil, badURL("percent-encode # as %23 and @ as %40")
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	if err := u.parseAuthority(authority); err != nil {
		return nil, err
	}
	return u, u.parseTail(tail)
}

func (u *URL) parseAuthority(s string) error {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		user, password, _ := strings.Cut(s[:at], ":")
		var err1, err2 error
		u.User, err1 = url.PathUnescape(user)
		password, err2 = url.PathUnescape(password)
		u.Password = NewSecret(password)
		if err1 != nil || err2 != nil {
			return badURL("user or password has a malformed percent-encoding")
		}
		s = s[at+1:]
	}
	if s == "" {
		return nil
	}
	u.Hosts = strings.Split(s, ",")
	for _, h := range u.Hosts {
		if !validHost(h) {
			return badURL("malformed host or port")
		}
	}
	return nil
}

func (u *URL) parseTail(s string) error {
	path, query, _ := strings.Cut(s, "?")
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return badURL("path has a malformed percent-encoding")
	}
	for param := range strings.SplitSeq(query, "&") {
		if param != "" && !strings.Contains(param, "=") { // it may be the rest of a secret
			return badURL("a parameter has no value: want name=value, and percent-encode & as %26")
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return badURL("malformed parameters")
	}
	u.Params = Params{values: values}
	return nil
}

// Each returns a URL for each of the hosts, with the given scheme and all else as
// it is. The parameters are taken from u.
func (u *URL) Each(scheme string) []*URL {
	params := u.Params
	u.Params = Params{problems: params.problems}
	each := make([]*URL, len(u.Hosts))
	for i, host := range u.Hosts {
		one := *u
		one.Scheme, one.Hosts = scheme, []string{host}
		one.Params = Params{values: maps.Clone(params.values)}
		each[i] = &one
	}
	return each
}

// String returns the URL without user, password and parameters.
func (u URL) String() string {
	return u.Scheme + "://" + strings.Join(u.Hosts, ",") + (&url.URL{Path: u.Path}).EscapedPath()
}

// HostPorts returns the hosts with a port each, the given one where the URL
// has none. IPv6 hosts come in brackets.
func (u *URL) HostPorts(port string) []string {
	out := make([]string, len(u.Hosts))
	for i, h := range u.Hosts {
		out[i] = h
		if _, _, err := net.SplitHostPort(h); err != nil {
			out[i] = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
	}
	return out
}

func badURL(problem string) error {
	return Fail(ErrInvalidConfig, errors.New("URL: "+problem))
}

func validScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if c < 'a' || c > 'z' {
			if i == 0 || strings.IndexByte("0123456789+-.", s[i]) < 0 {
				return false
			}
		}
	}
	return s != ""
}

func validHost(s string) bool {
	host, port := s, ""
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return false
		}
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		host = s[1 : len(s)-1]
	} else if strings.ContainsRune(s, ':') {
		return false
	}
	if strings.ContainsRune(host, ':') {
		return net.ParseIP(host) != nil
	}
	return host != "" && !strings.ContainsAny(host, "[]%@ \t\r\n\"<>\\^`{|}")
}
