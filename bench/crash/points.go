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

// back reports whether a step is undone in this phase.
func (p phase) back() bool { return p == unwinding || p == rolling }

// target is a labelled point, with the action whose steps reach it.
type target struct {
	Label  string
	Action string
	Phase  phase
	// Reads: only a command that reads reaches it; Reruns: only one whose result was lost.
	Reads, Reruns bool
	// Volumes: only a command whose volumes are copied reaches it; Plain: only one without volumes.
	Volumes, Plain bool
	// Kept is how the containers that reach it keep their checkpoints; empty: either way.
	Kept keeping
}

// keeping is a way to keep the checkpoints of a container.
type keeping string

const (
	inLayers keeping = "layers"
	inImages keeping = "images" // docker commit
)

// keepingOf is that of a host: every other one takes checkpoints as layers, where the machine lets
// it.
func keepingOf(host int) keeping {
	if host%2 == 1 {
		return inLayers
	}
	return inImages
}

// keptIn are the points that containers reach only on some hosts.
var keptIn = map[keeping]string{
	inLayers: "layers-restored committed",
	inImages: "candidate-built successor-named old-renamed old-stopped new-named new-started kept",
}

// keptOn returns the hosts that reach a point.
func keptOn(what string) keeping {
	for k, all := range keptIn {
		if slices.Contains(strings.Fields(all), what) {
			return k
		}
	}
	return ""
}

// on reports whether the steps of a host reach the point.
func (t target) on(host int) bool { return t.Kept == "" || t.Kept == keepingOf(host) }

// supervised reports whether the point is in one of the processes that run Terraform for a worker.
func (t target) supervised() bool {
	return strings.HasPrefix(t.Label, "terraform.supervisor:") || strings.HasPrefix(t.Label, "terraform.front:")
}

// points are the points of the actions of each world, except for those that no task here can reach.
var points = map[string]map[phase]string{
	"file.write": {
		planning: "plan-staged plan-cleared",
		forward:  "stage-begun stage-filled staged captured recorded swapped put left checked applied",
		unwinding: "undo-begun moved-away undo-fenced undo-claimed undo-planned undo-taken-back undo-swapped undo-times " +
			"undo-settled undone",
		redoing: "times",
	},
	"file.delete": {
		planning: "plan-staged plan-cleared",
		forward:  "stage-begun stage-filled staged captured recorded swapped put left checked applied",
		unwinding: "undo-begun moved-away undo-fenced undo-claimed undo-planned undo-taken-back undo-swapped undo-times " +
			"undo-settled undone",
		redoing: "times",
	},
	"folder.checkpoint": {
		forward:   "recorded applied",
		unwinding: "closed dropped",
	},
	"folder.restore": {
		forward:   "recorded put-back applied",
		unwinding: "closed fenced undone",
	},
	"unit.stop": {
		forward:   "recorded alone switched applied",
		unwinding: "closed fenced undone",
	},
	"unit.start": {
		forward:   "recorded alone switched applied",
		unwinding: "closed fenced undone",
	},
	"environment.checkpoint": {
		forward:   "recorded asked applied",
		unwinding: "closed deleted",
	},
	"environment.rollback": {
		forward:   "recorded asked applied",
		unwinding: "closed settled tried forward undone let-go",
	},
	"disk.checkpoint": {
		forward:   "recorded kept applied",
		unwinding: "undo-begun undo-fenced undo-settled undone",
	},
	"disk.restore": {
		forward:   "captured recorded put-back left applied",
		unwinding: "undo-begun undo-fenced undo-settled undone",
	},
	"snapshot": {
		forward:   "ticket kept",
		unwinding: "taken-out put-in paths-restored",
	},
	"container.exec": {
		forward: "volumes-kept captured recorded read checkpoint-taken ticket-taken before-supervisor " +
			"rolled-back-to-rerun command-ended applied",
		unwinding: "undo-begun left-ended drift-checked candidate-built successor-named old-renamed old-stopped " +
			"new-named new-started " +
			"layers-restored volumes-restored rolled-back checkpoint-dropped committed",
		rolling: "kept",
		redoing: "put-back",
	},
	"sqlite.exec": {
		planning:  "rehearsed taken-back",
		forward:   "locked copied captured recorded marked committed applied",
		unwinding: "undo-begun undo-fenced undo-locked undo-acting undo-committed undone",
	},
	"postgres.exec": {
		planning:  "rehearsed",
		forward:   "journal recorded performed complete committed",
		unwinding: "undo-begun fenced removed restored outcome",
	},
	"redis.exec": {
		planning:  "planned",
		forward:   "looked applied",
		unwinding: "undo-begun fenced restored",
	},
	"etcd.txn": {
		planning:  "planned",
		forward:   "looked applied",
		unwinding: "undo-begun fenced restored settled",
	},

	"terraform.apply":      {forward: "planned recorded applied left done"},
	"terraform.front":      {forward: "ready passed-on"},
	"terraform.supervisor": {forward: "begun registered locked allowed started ended"},
	"terraform.undo":       {unwinding: "fenced turn cleared subtracted back tidied settled"},

	"stripe.customer.create":       create,
	"stripe.product.create":        create,
	"stripe.price.create":          create,
	"stripe.coupon.create":         create,
	"stripe.payment_intent.create": create,
	"stripe.subscription.create": {forward: "looked answered confirmed",
		unwinding: "fenced marked canceled invoice-cleared"},
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
		action := prefix
		switch world {
		case "terraform":
			action = "terraform.apply"
		case "snapshot":
			world, action = "folder", "folder.restore"
		}
		if !slices.Contains(worlds, world) {
			continue
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
