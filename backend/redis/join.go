package redis

// join makes one command of those that run the same script, each for a lock of
// its own: a script costs the server as much as several of the commands in it.
// The locks are no less independent for it, since each part has its own answer.
func join(all []*parcel) []*parcel {
	out := make([]*parcel, 0, len(all))
	var joints []*parcel
next:
	for _, p := range all {
		if !p.joins {
			out = append(out, p)
			continue
		}
		for _, j := range joints {
			if j.take(p) {
				continue next
			}
		}
		j := newParcel(nil)
		j.parts = append(j.parts, p)
		joints, out = append(joints, j), append(out, j)
	}
	for _, j := range joints {
		j.args = j.together()
	}
	return out
}

// take adds p to the parts of a joint if that runs its script.
func (j *parcel) take(p *parcel) bool {
	first := j.parts[0].args
	if len(j.parts) == batch || len(p.args) != len(first) || p.args[0] != first[0] || p.args[1] != first[1] {
		return false
	}
	j.parts = append(j.parts, p)
	return true
}

// together is the command that does what all parts do: with the one key of each,
// then the arguments of each.
func (j *parcel) together() []any {
	first, n := j.parts[0].args, len(j.parts)
	if n == 1 {
		return first
	}
	all := append(make([]any, 0, keyAt+n*(len(first)-keyAt)), first[0], first[1], n)
	for _, p := range j.parts {
		all = append(all, p.args[keyAt])
	}
	for _, p := range j.parts {
		all = append(all, p.args[keyAt+1:]...)
	}
	return all
}

// share gives each part its part of the reply, or the error.
func (j *parcel) share() {
	if len(j.parts) == 1 {
		j.parts[0].reply, j.parts[0].err = j.reply, j.err
		return
	}
	replies, _ := j.reply.([]any)
	for i, p := range j.parts {
		switch {
		case j.err != nil:
			p.err = j.err
		case len(replies) != len(j.parts):
			p.err = errGarbled
		default:
			p.reply = replies[i]
		}
	}
}
