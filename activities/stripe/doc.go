// Package stripe is the world "stripe": customers, products, prices, coupons, subscriptions, payment intents and refunds
// of one Stripe account, each action with its inverse.
//
//	world, err := stripe.New(stripe.Config{Key: func() (string, error) { return secrets.Secret("STRIPE_KEY") }})
//	registry := activities.NewRegistry(world)
//
// # Where the record is
//
// There is no journal beside the API: any worker with a key of the same account can undo. Every request has an
// idempotency key made from the step's token, every object that is made carries the token in its metadata, and what must
// be known of an undo is noted there too, in names that start with "unwind_". The id of the "journal" is the account's,
// with its mode; a worker with another account's key refuses (WrongPlace).
//
// # How a late forward is kept from acting
//
// Creates that move no money (customer, product, price, coupon, payment_intent.create): the undo sends the same request
// under the same key. It gets the object that the forward has made, or makes the one that a late forward will be shown,
// and takes it away. A forward that finds its object deleted or noted as undone is Fenced.
//
// All others (subscription.create, confirm, capture, cancel, refund) are never sent by an undo, for that could be the very
// payment. It uses the forward's key for a note on the customer or the payment intent instead. From then on Stripe answers
// the forward with an error, for a key belongs to one request; and where the forward came first, the note gets that error,
// which tells that the forward has arrived. What it did is then looked up and taken back.
//
// # When nothing is seen, and that is no proof
//
// An undo of a step that is older than a key lives may see nothing, and so may one whose request Stripe has answered with a
// 500. Its outcome then asks to be called once more (Undone.LookAgain), later than any key is remembered that it has used:
// it lists and looks anew then, and takes back what has come since.
//
// # How a step is done again
//
// A redo has a token of its own, so it has keys of its own, and makes something new with another id; an id that the task
// chose is used again where Stripe has let go of it. A confirmation or capture is done again on the intent that the redone
// task has made. A refund or cancellation that a rollback could not take back stands, and is not done twice.
//
// # What this cannot do
//
// Stripe remembers a key for 24 hours, counted from its first use. A forward that comes later than that after its undo, or
// after an attempt of its own that the undo has found, is stopped by its own context, which ends with the activity, and by
// nothing else, but for the late look above. A second undo of a deleted customer, of a step that is more than 24 hours old,
// cannot tell any more whether the forward had acted, and says nothing-to-undo.
//
// An id that the task chooses for a product or coupon can be used again once it is deleted. An undo that was stopped right
// before its deletion, and goes on after another step has made an object with that id, deletes that one. Ids that are made
// from the token, as they are where none is chosen, cannot meet.
//
// The API knows no conditional writes: a change that someone makes between the undo's look at an object and its request,
// some milliseconds later, is lost with the object.
//
// Release leaves a note on what the step made, so that a later forward or undo is refused. A step that has made nothing
// leaves nothing to note: its key alone stands in the way, for its 24 hours.
//
// An answer 500 is what Stripe keeps for a key, so the key never tells what the request has made. The object is then looked
// for by its token; found, it counts as made; not found, the step ends with UnknownOutcome, and its undo looks again, at
// once and a day later. A second undo, after the first has deleted the object, finds nothing and says nothing-to-undo.
package stripe
