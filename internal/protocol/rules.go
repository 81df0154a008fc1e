package protocol

// A Rule is one thing that the protocol asks for. Rules can be added up.
type Rule uint

const (
	Anchor            Rule = 1 << iota // a deadline counts from when something was sent, never from when its answer came
	Poll                               // who waits asks by itself from time to time
	SettleOnCancel                     // who leaves the queue lets in whom it kept out
	SettleOnDowngrade                  // who becomes a reader lets in the readers that wait
	Watch                              // who handed the lock over looks after it
	FreshID                            // each entry into the queue has an ID of its own
	NoLateGrant                        // a grant whose message took longer than a margin is confirmed
	Doubt                              // a grant by message is confirmed if another request for it may be under way
	GiveBack                           // a grant that nobody waits for is given back
	Tombstone                          // an ID that was given up is refused from then on
	Abandon                            // an ID that is left behind with a request under way is given up
	ReadersToken                       // the first reader after a writer takes a new token
	WithinLease                        // a token handed on is below what the server's clock says when the lease ends
	WithinElapsed                      // a token handed on is below what the server's clock says now
	ReportOnDowngrade                  // whoever becomes a reader tells how far it handed tokens on
	CountFirst                         // a grant is sent only to who is counted, and what was sent is granted
	Follow                             // a client moves its subscription to the server that it waits at
	Proof                              // a message counts only if it names an ID that nobody can guess
	BreakByToken                       // Break ends a hold only under its token of the moment
	SettleOnBreak                      // Break lets in who is next
	RaiseOnBreak                       // tokens go on beyond all that the holder may still hand on
	TellOnRenewal                      // a renewal says that the hold was taken away
	Rejoin                             // a server that lost its data waits until what it knew has ended
	SameRun                            // a server that has loaded what it knew some time before has lost its data
	TokenFloor                         // a token is not below the servers' clocks
	TokenRound                         // a majority of servers knows the token before the lock counts as held
)
