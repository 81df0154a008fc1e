// Package faultnet puts network faults between a real client and a real server
// on loopback.
//
// A [Proxy] forwards TCP connections to a target. Give each client a proxy of
// its own and it can be cut off alone. Every fault can be switched at any time,
// acts on live connections, and composes with the others:
//
//	fault                        healed by
//	Delay(way, latency, jitter)  Delay(way, 0, 0)
//	Blackhole(way)               Restore(way)
//	Refuse()                     Admit()
//	Reset()                      nothing: it is over at once
//	DropReply, DropReplyAfter    Drop.Disarm, or firing once
//	all of them                  Heal()
//
// A blackhole holds bytes back, as a partition does: TCP retransmits once the
// network is back, so that what was sent meanwhile, the end of a stream
// included, arrives late but complete and in order. A request of a client that
// has long given up therefore still reaches the server after healing. Nothing
// is ever removed from the middle of a stream.
//
// DropReply is the fault "committed but unknown": the server gets the request
// and carries it out, the client gets a reset in place of the reply. Requests
// are found by a [Framing]; the ones here read plain text only, so the
// connection must not use TLS.
//
// The kernel of this machine answers for both ends. A proxy can therefore show
// neither keepalive probes that fail nor a connect that times out.
package faultnet
