package environment

import (
	"slices"
	"time"
)

// Usage is what the checkpoints of an environment take, and which are kept.
type Usage struct {
	Checkpoints int   `json:"checkpoint_count"`
	Pinned      int   `json:"pinned_count"`
	Bytes       int64 `json:"total_bytes"`
	Last        int   `json:"keep_last"`
	Days        int   `json:"daily_days"`
	MaxBytes    int64 `json:"max_bytes,omitempty"`
}

// UsageOf sums up checkpoints.
func (r Retention) UsageOf(all []Checkpoint) Usage {
	r = r.WithDefaults()
	u := Usage{Checkpoints: len(all), Last: r.Last, Days: r.Days, MaxBytes: r.Bytes}
	for _, c := range all {
		u.Bytes += c.Bytes
		if c.Pinned {
			u.Pinned++
		}
	}
	return u
}

// Expired are the ids of the checkpoints that are not kept, the oldest first. all are the newest
// first. The newest always stays, and so does what is pinned or needed.
func (r Retention) Expired(all []Checkpoint, now time.Time) (ids []string) {
	r = r.WithDefaults()
	daily := map[string]string{} // the oldest of each day
	for _, c := range all {
		if now.Sub(c.Created) < time.Duration(r.Days)*24*time.Hour {
			daily[c.Created.UTC().Format(time.DateOnly)] = c.ID
		}
	}
	var total int64
	for _, c := range all {
		if c.IsKept() {
			total += c.Bytes
		}
	}
	for i, c := range all {
		kept := i < r.Last || daily[c.Created.UTC().Format(time.DateOnly)] == c.ID
		fits := r.Bytes == 0 || total+c.Bytes <= r.Bytes
		switch {
		case c.IsKept():
		case i == 0 || kept && fits:
			total += c.Bytes
		default:
			ids = append(ids, c.ID)
		}
	}
	slices.Reverse(ids)
	return ids
}
