package container

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
)

// bytes is what a token takes outside its own folder, with any backend: its record may be gone.
func (x *execAction) bytes(e activities.Entry) int64 {
	return x.backend.bytes(e) + x.choice.layers.bytes(e)
}

// bytes is what the layers of the token's checkpoint take, wherever it is; as far as a helper tells.
func (l *layers) bytes(e activities.Entry) (sum int64) {
	ctx, cancel := context.WithTimeout(context.Background(), bytesLimit)
	defer cancel()
	known, _ := l.home.containers()
	for _, id := range known {
		if stands, err := l.home.stands(ctx, id); !stands || err != nil {
			continue
		}
		a, _ := l.helper.Ask(ctx, helper.Request{Op: helper.Weigh, Container: id, Name: e.Token, Keep: keptMark(e.Token, "")})
		sum += a.Bytes
	}
	return sum
}
