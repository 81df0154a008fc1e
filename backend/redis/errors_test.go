package redis

import (
	"errors"
	"fmt"
	"strings"
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

// One Sentinel says that it wants a password, and another repeats the password that it has been told.
func TestSentinelRepeatsPassword(t *testing.T) {
	t.Parallel()
	wants := replyText("NOAUTH Authentication required.")
	repeats := replyText("ERR unknown command `AUTH`, with args beginning with: `secret`, ")
	for _, said := range [][]error{{wants, repeats}, {repeats, wants}, {errors.New("dial"), repeats}} {
		err := fail(fmt.Errorf(masterless+": %w", errors.Join(said...)))
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error names the password: %v", err)
		}
		if !strings.Contains(err.Error(), masterless) {
			t.Errorf("the error does not say that it is about Sentinels: %v", err)
		}
	}
}
