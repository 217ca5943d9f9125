// Package stripe is the world "stripe": customers, products, prices, coupons, subscriptions,
// payment intents and refunds of one Stripe account, each action with its inverse.
//
//	world, err := stripe.New(stripe.Config{Key: func() (string, error) { return secrets.Secret("STRIPE_KEY") }})
//	registry := activities.NewRegistry(world)
//
// # Where records are
//
// There is no journal beside the API: any worker with a key of the same account can undo. Every
// request has an idempotency key derived from the step's token, every object carries the token in
// its metadata, and an undo leaves its notes there too, under names that start with "unwind_". The
// id of the "journal" is that of the account, with its mode; a worker with another account's key
// refuses (WrongPlace).
//
// # How a late forward is fenced
//
// Creates that move no money (customer, product, price, coupon, payment_intent.create): the undo
// sends the same request under the same key. It gets the object that the forward created, or
// creates the one that a late forward will get, and removes it. A forward that finds its object
// deleted or noted as undone is Fenced.
//
// An undo never sends any other request (subscription.create, confirm, capture, cancel, refund),
// since that could be the payment itself. Instead it uses the forward's key for a note on the
// customer or the payment intent. Since a key belongs to one request, Stripe then answers the
// forward with an error; if the forward came first, the note gets that error, which shows that the
// forward arrived. The undo then looks up what the forward did, and reverses it.
//
// # When seeing nothing proves nothing
//
// An undo may see nothing if the step is older than the life of a key, or if Stripe answered its
// request with a status 500. Its outcome then asks for a second look (Undone.LookAgain) once Stripe
// has forgotten every key that it used: that look lists the objects again, and undoes what has
// arrived since.
//
// # How a step is redone
//
// A redo has a token and thus keys of its own, so it creates a new object with another id; an id
// that the task chose is used again if Stripe has released it. A confirmation or capture is
// repeated on the intent that the redone task created. A refund or cancellation that a rollback
// could not undo still stands, and is not repeated.
//
// # Limits
//
// Stripe remembers a key for 24 hours from its first use. A forward that arrives later than that,
// counted from its undo or from an attempt of its own that the undo found, is stopped only by the
// end of its activity's context, and noticed by the second look. A second undo of a deleted
// customer, of a step that is more than 24 hours old, can no longer tell whether the forward had
// acted, and reports nothing-to-undo.
//
// An id that the task chooses for a product or coupon can be used again after its deletion. An undo
// that was paused just before the deletion, and goes on after another step created an object with
// that id, deletes that object. Ids made from the token, as they are by default, cannot collide.
//
// The API has no conditional writes: a change that someone makes in the milliseconds between the
// undo's look at an object and its request is lost with the object.
//
// Release leaves a note on the object, so that a later forward or undo is refused. If the step
// created nothing, only its key stands in the way, for 24 hours.
//
// If Stripe keeps a status 500 for a key, the key never tells what the request did. The object is
// then looked up by its token. If it is found, it counts as created; otherwise the step ends with
// UnknownOutcome, and its undo looks again, at once and a day later. A second undo, after the first
// has deleted the object, finds nothing and reports nothing-to-undo.
package stripe
