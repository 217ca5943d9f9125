package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
)

// Agency takes bookings and keeps them in memory, by token, so that a booking is made once, and a
// canceled one is never made late.
type Agency struct {
	mu       sync.Mutex
	bookings map[string]string // by token; an empty one was canceled
}

// Bookings lists what is booked.
func (a *Agency) Bookings() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []string{}
	for _, b := range a.bookings {
		if b != "" {
			list = append(list, b)
		}
	}
	slices.Sort(list)
	return list
}

// BookHotel is a forward.
func (a *Agency) BookHotel(_ context.Context, b Booking) error {
	return a.book(b.Entry.Token, "hotel in "+b.City)
}

// BookFlight is a forward. A flight to Atlantis is booked, but then the connection breaks: the
// caller gets an error and cannot know that there is a booking.
func (a *Agency) BookFlight(_ context.Context, b Booking) error {
	err := a.book(b.Entry.Token, "flight to "+b.City)
	if b.City == "Atlantis" {
		err = temporal.NewApplicationError("the line went dead", "LineDead")
	}
	return err
}

// Cancel is the undo of both. It is right whether the booking was made, was not made, or arrives
// later.
func (a *Agency) Cancel(_ context.Context, b activities.Backward) (activities.Undone, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.bookings[b.Entry.Token]
	a.putBooking(b.Entry.Token, "")
	if was == "" {
		return activities.Undone{Outcome: activities.Nothing, Observed: "there is no booking"}, nil
	}
	return activities.Undone{Outcome: activities.Restored, Observed: "canceled: " + was}, nil
}

func (a *Agency) book(token, what string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, known := a.bookings[token]; known && was == "" {
		return fmt.Errorf("%s: canceled before it was booked", what)
	}
	a.putBooking(token, what)
	return nil
}

func (a *Agency) putBooking(token, what string) {
	if a.bookings == nil {
		a.bookings = map[string]string{}
	}
	a.bookings[token] = what
}
