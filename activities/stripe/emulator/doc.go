// Package emulator is a stateful stand-in for the Stripe API: it keeps objects, idempotency keys
// and the answers saved under them, moves (counted) money, and fails on demand as networks and
// payment services fail. It serves what stripe-go v76 sends, over HTTP, for tests and for the demo.
// It shares no code with package stripe, so what it says about the world is a second opinion.
//
//	em := emulator.New(emulator.Options{})
//	server, err := em.Start("127.0.0.1:0") // server.URL is stripe.Config.BaseURL; any key "sk_test_..." is accepted
//	defer server.Close()
//	em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/payment_intents/*/confirm"), Do: emulator.Hold})
//	...
//	clock.Advance(time.Hour); em.Deliver() // the request arrives an hour after its sender gave up
//	em.Live()                              // what a clean-up left behind
//
// GET /_emulator answers the same from outside: live objects and counters as JSON.
//
// Keys behave as Stripe documents them: the first response to a key is saved, errors included
// (except for a request that was malformed or came while another with its key ran), and is sent
// again with "Idempotent-Replayed: true"; the same key for another endpoint or other parameters is
// an error; a key is forgotten once it is 24 hours old.
package emulator
