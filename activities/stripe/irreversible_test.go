package stripe

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// ending is how an intent stands, seen from outside.
type ending struct {
	Intent, Status, Method string
	// Taken is what was charged and Held what still can be; Refunds are counted, Refunded is their
	// sum.
	Taken, Held, Refunds, Refunded int64
}

// irreversible is a world in which two intents may come to an end for good: one for each generation
// of the step.
type irreversible struct {
	First, Next ending
	Counters    emulator.Counters
	Others      []string
}

// cancelCase lets go of held money; nobody can take it afterwards.
func cancelCase() actiontest.Case {
	return final(changed("payment_intent.cancel", "FIRST_HELD", "NEXT_HELD"), "FIRST_HELD", "NEXT_HELD",
		func(e ending) ending {
			e.Status, e.Held = "canceled", 0
			return e
		})
}

// refundCase gives all of an intent's money back, less what somebody else gave back before.
func refundCase() actiontest.Case {
	c := changed("refund.create", "FIRST", "NEXT")
	c.Start = func(t testing.TB, dir string) {
		start(t, dir)
		for _, name := range []string{"FIRST", "NEXT"} {
			send(t, read(t, dir, "URL"), http.MethodPost, "/v1/payment_intents/"+read(t, dir, name)+"/confirm")
		}
	}
	c.Meanwhile = func(t testing.TB, dir string) {
		send(t, read(t, dir, "URL"), http.MethodPost, "/v1/refunds", "payment_intent", read(t, dir, "FIRST"), "amount", "500")
	}
	return final(c, "FIRST", "NEXT", func(e ending) ending {
		e.Refunds, e.Refunded = e.Refunds+1, e.Taken
		return e
	})
}

// partialRefundCase leaves money for a second refund: here Stripe itself would not stop one.
func partialRefundCase() actiontest.Case {
	const part = 300
	c := refundCase()
	c.Name += "_of_a_part"
	c.With = func(dir string) any { return params{"payment_intent": "FIRST", "amount": part}.in(dir) }
	c.Next = func(dir string) any { return params{"payment_intent": "NEXT", "amount": part}.in(dir) }
	return final(c, "FIRST", "NEXT", func(e ending) ending {
		e.Refunds, e.Refunded = e.Refunds+1, e.Refunded+part
		return e
	})
}

// final makes a case of an action that cannot be taken back. After an undo each intent is as it
// was, or as one forward leaves it, and the account's counters have moved by that and no more. Such
// a step has nothing that can drift.
func final(c actiontest.Case, first, next string, once func(ending) ending) actiontest.Case {
	c.Undone = activities.Final
	c.Manifest = func(t testing.TB, dir string) string {
		w := irreversible{First: endingOf(t, dir, first), Next: endingOf(t, dir, next), Counters: stateOf(t, dir).Counters}
		for line := range strings.Lines(manifest(t, dir)) {
			kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			id, _, _ := strings.Cut(rest, " ")
			if id != w.First.Intent && id != w.Next.Intent && kind != "money" { // the counters tell more
				w.Others = append(w.Others, kind+" "+rest)
			}
		}
		raw, err := json.MarshalIndent(w, "", " ")
		require.NoError(t, err)
		return string(raw)
	}
	c.Same = func(before, after string) bool {
		for _, firstActed := range []bool{false, true} {
			for _, nextActed := range []bool{false, true} {
				if after == acted(before, firstActed, nextActed, once) {
					return true
				}
			}
		}
		return false
	}
	return c
}

// acted is the manifest of a world in which the forwards of the one generation, the other, or both
// have acted once.
func acted(before string, first, next bool, once func(ending) ending) string {
	var w irreversible
	if err := json.Unmarshal([]byte(before), &w); err != nil {
		panic(err) // it is a manifest of ours
	}
	act := func(e *ending) {
		now := once(*e)
		w.Counters.Refunds += int(now.Refunds - e.Refunds)
		w.Counters.Refunded += now.Refunded - e.Refunded
		*e = now
	}
	if first {
		act(&w.First)
	}
	if next {
		act(&w.Next)
	}
	raw, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		panic(err) // plain values
	}
	return string(raw)
}

// endingOf looks at an intent and its refunds as any other client of the account would.
func endingOf(t testing.TB, dir, name string) ending {
	id, url := read(t, dir, name), read(t, dir, "URL")
	intent := object(send(t, url, http.MethodGet, "/v1/payment_intents/"+id))
	e := ending{
		Intent: id, Status: intent.text("status"), Method: intent.text("payment_method"),
		Taken: intent.number("amount_received"), Held: intent.number("amount_capturable"),
	}
	listed := send(t, url, http.MethodGet, "/v1/refunds?limit=100&payment_intent="+id)
	require.Equal(t, false, listed["has_more"])
	for _, refund := range listed["data"].([]any) {
		e.Refunds++
		e.Refunded += object(refund.(map[string]any)).number("amount")
	}
	return e
}
