package checkpoint

// Loss is something that an undo of container.exec does not bring back, whatever the container is
// like.
type Loss struct {
	// Of begins the sentence that names it in plans and reports, together with the others of the same
	// beginning.
	Of string
	// What is lost.
	What string
	// Commit and Layers are the backends with which it is.
	Commit, Layers bool
}

// Beginnings of sentences.
const (
	ofContainer = "the container is made anew: "
	ofFiles     = "of files that were not in its image: "
)

// LossTable is what plans, reports and docs/containers.md say, and what a test finds on engines.
var LossTable = []Loss{
	{Of: ofContainer, What: "it has another id", Commit: true},
	{Of: ofContainer, What: "its image is named by id", Commit: true},
	{Of: ofContainer, What: "anonymous volumes become named ones", Commit: true},
	{Of: ofContainer, What: "its log begins anew", Commit: true},
	{What: "its processes start again: what they held in memory is gone", Commit: true},
	{What: LeftRunning, Commit: true, Layers: true},
	{Of: ofFiles, What: "times below a second", Commit: true},
	{Of: ofFiles, What: "ACLs", Commit: true},
	{Of: ofFiles, What: "user.* attributes", Commit: true},
	{Of: ofFiles, What: "trusted.* attributes", Commit: true},
	{Of: ofFiles, What: "sockets", Commit: true},
	{Of: ofFiles, What: "holes (sparse files are filled)", Commit: true},
}

// LeftRunning is what a rollback ends.
const LeftRunning = "processes that commands have left in the container, this step's or others', are ended"

// NoProcess begins what an undo says of processes.
const NoProcess = "No process is brought back to what it was: "

// mayLose is what an engine may bring back or not.
const mayLose = "addresses and ports that the engine chooses (not those that were asked for) may be others; what " +
	"was linked to the old id, or shares its network or process namespace, has lost it"

// sentences tell those of the table that are lost.
func sentences(lost func(Loss) bool) []string {
	var all []string
	first := map[string]int{}
	for _, l := range LossTable {
		if !lost(l) {
			continue
		}
		if at, ok := first[l.Of]; ok && l.Of != "" {
			all[at] += ", " + l.What
			continue
		}
		first[l.Of] = len(all)
		all = append(all, l.Of+l.What)
	}
	return all
}

// LossesByCommit is what docker commit does not bring back.
func LossesByCommit() []string {
	return append(sentences(func(l Loss) bool { return l.Commit }), mayLose)
}

// LossesByLayers is what layers do not bring back.
func LossesByLayers() []string { return sentences(func(l Loss) bool { return l.Layers }) }

// LossesByRecreation is what a container has lost that is made like another.
func LossesByRecreation() []string {
	return append(sentences(func(l Loss) bool { return l.Commit && l.Of != ofFiles }), mayLose)
}
