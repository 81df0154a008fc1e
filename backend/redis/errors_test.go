package redis

import (
	"testing"

	"github.com/dlock-go/dlock/backend"
)

type replyText string

func (e replyText) Error() string { return string(e) }

func (replyText) RedisError() {}

// TestQuotedRefusal has Redis 6.2 tell, within another error, what has ended a script.
func TestQuotedRefusal(t *testing.T) {
	t.Parallel()
	const quoted = "ERR Error running script (call to f_4804765cb65e7d23a4608ed6d883c91ad1694392): @user_script:1: "
	for text, want := range map[string]struct{ passes, untouched bool }{
		quoted + "@user_script: 1: -READONLY You can't write against a read only replica.":        {true, true},
		quoted + "@user_script: 1: -NOREPLICAS Not enough good replicas to write.":                {true, true},
		quoted + "@user_script: 1: -MISCONF Errors writing to the AOF file: No space left":        {false, true},
		quoted + "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.":      {false, false},
		quoted + "WRONGTYPE Operation against a key holding the wrong kind of value":              {false, false},
		quoted + "@user_script: 1: The user executing the script can't run this command":          {false, false},
		"READONLY You can't write against a read only replica. script: 48047, on @user_script:1.": {true, true},
	} {
		if err := replyText(text); isPassing(err) != want.passes || isUntouched(err) != want.untouched {
			t.Errorf("%s: passes %t, untouched %t", text, isPassing(err), isUntouched(err))
		}
	}
	if kind := kindOf(replyText(quoted + "@user_script: 1: The user executing the script can't run this command or subcommand")); kind != backend.ErrAuth {
		t.Errorf("a right that is missing is %v", kind)
	}
}
