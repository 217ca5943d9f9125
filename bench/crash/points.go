package crash

import (
	"maps"
	"slices"
	"strings"
)

// phase is when a point is reached.
type phase int

const (
	forward   phase = iota // by a step that is applied
	planning               // by a step with a gate
	unwinding              // by a step that is undone
	rolling                // by a step that is undone so that it can be redone
	redoing                // by a step that is redone
)

// back says that a step is undone in it.
func (p phase) back() bool { return p == unwinding || p == rolling }

// target is a labelled point, with the action of which a task needs a step to come there.
type target struct {
	Label  string
	Action string
	Phase  phase
	// Reads says that only a command which reads comes there, Reruns one whose result was lost.
	Reads, Reruns bool
	// Volumes says that only a command whose volumes are copied comes there, Plain only one that has none.
	Volumes, Plain bool
	// Kept says which hosts' containers come there, by how they keep checkpoints; empty: all.
	Kept keeping
}

// keeping is a way to keep the checkpoints of a container.
type keeping string

const (
	inLayers keeping = "layers"
	inImages keeping = "images" // docker commit
)

// keepingOf is that of a host: every other one takes checkpoints as layers, where the machine lets it.
func keepingOf(host int) keeping {
	if host%2 == 1 {
		return inLayers
	}
	return inImages
}

// keptIn are the points that containers come to on some hosts alone.
var keptIn = map[keeping]string{
	inLayers: "layers-restored committed",
	inImages: "candidate-built successor-named old-renamed old-stopped new-named new-started kept",
}

// keptOn says which hosts come to a point.
func keptOn(what string) keeping {
	for k, all := range keptIn {
		if slices.Contains(strings.Fields(all), what) {
			return k
		}
	}
	return ""
}

// on says whether a host's steps come there.
func (t target) on(host int) bool { return t.Kept == "" || t.Kept == keepingOf(host) }

// supervised says that the point is one of what runs Terraform for a worker, in processes of their own.
func (t target) supervised() bool {
	return strings.HasPrefix(t.Label, "terraform.supervisor:") || strings.HasPrefix(t.Label, "terraform.front:")
}

// points are the points of each world's actions, without those that no task here can come to.
var points = map[string]map[phase]string{
	"file.write": {
		planning:  "plan-staged plan-cleared",
		forward:   "stage-begun stage-filled staged captured recorded swapped put left checked applied",
		unwinding: "undo-begun moved-away undo-fenced undo-claimed undo-planned undo-taken-back undo-swapped undo-times undo-settled undone",
		redoing:   "times",
	},
	"file.delete": {
		planning:  "plan-staged plan-cleared",
		forward:   "stage-begun stage-filled staged captured recorded swapped put left checked applied",
		unwinding: "undo-begun moved-away undo-fenced undo-claimed undo-planned undo-taken-back undo-swapped undo-times undo-settled undone",
		redoing:   "times",
	},
	"container.exec": {
		forward: "volumes-kept captured recorded read checkpoint-taken ticket-taken before-supervisor rolled-back-to-rerun command-ended applied",
		unwinding: "undo-begun left-ended drift-checked candidate-built successor-named old-renamed old-stopped new-named new-started " +
			"layers-restored volumes-restored rolled-back checkpoint-dropped committed",
		rolling: "kept",
		redoing: "put-back",
	},
	"terraform.apply":      {forward: "planned recorded applied left done"},
	"terraform.front":      {forward: "ready passed-on"},
	"terraform.supervisor": {forward: "begun registered locked allowed started ended"},
	"terraform.undo":       {unwinding: "fenced turn cleared subtracted back tidied settled"},

	"stripe.customer.create":        create,
	"stripe.product.create":         create,
	"stripe.price.create":           create,
	"stripe.coupon.create":          create,
	"stripe.payment_intent.create":  create,
	"stripe.subscription.create":    {forward: "looked answered confirmed", unwinding: "fenced marked canceled invoice-cleared"},
	"stripe.payment_intent.confirm": {forward: "recorded answered confirmed", unwinding: "fenced given-back canceled"},
	"stripe.payment_intent.capture": {forward: "recorded answered confirmed", unwinding: "fenced given-back"},
	"stripe.payment_intent.cancel":  {forward: "recorded answered confirmed", unwinding: "fenced"},
	"stripe.refund.create":          {forward: "looked answered confirmed", unwinding: "fenced"},
}

var create = map[phase]string{forward: "looked answered confirmed", unwinding: "claimed settled taken-back"}

// targets are all points of the given worlds, sorted.
func targets(worlds []string) []target {
	var all []target
	for _, prefix := range slices.Sorted(maps.Keys(points)) {
		world, _, _ := strings.Cut(prefix, ".")
		if !slices.Contains(worlds, world) {
			continue
		}
		action := prefix
		if world == "terraform" {
			action = "terraform.apply"
		}
		for _, when := range []phase{planning, forward, unwinding, rolling, redoing} {
			for what := range strings.FieldsSeq(points[prefix][when]) {
				t := target{
					Label: prefix + ":" + what, Action: action, Phase: when,
					Reads: what == "read", Reruns: what == "rolled-back-to-rerun",
				}
				if world == "container" {
					t.Kept, t.Volumes = keptOn(what), strings.HasPrefix(what, "volumes-")
					t.Plain = what == "kept" || what == "put-back" // of volumes nothing is kept to redo from
				}
				all = append(all, t)
			}
		}
	}
	return all
}
