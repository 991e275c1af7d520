// Members of share groups (KIP-932, KIP-1206, KIP-1222) with franz-go: `shares NAME BOOTSTRAP`, exit code 0
// when all held.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	patience = 45 * time.Second
	// how long a member waits in vain before we believe that there is nothing for it
	inVain = 1500 * time.Millisecond
	// the configuration resource type of a group
	groupResource = 32
)

var scenarios = map[string]func(*scenario){
	"polls_accept":       pollsAccept,
	"acknowledgements":   acknowledgements,
	"many_members":       manyMembers,
	"strict_limit":       strictLimit,
	"renewed_lock":       renewedLock,
	"member_that_leaves": memberThatLeaves,
	"given_up":           givenUp,
}

// A scenario has a topic with one partition, and a share group that begins at its first record.
type scenario struct {
	ctx       context.Context
	bootstrap string
	topic     string
	admin     *kgo.Client
}

func main() {
	run, bootstrap := scenarios[os.Args[1]], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(os.Args[1], "_", "-"), time.Now().UnixNano())
	admin := must(kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerLinger(0)))
	defer admin.Close()
	s := &scenario{ctx, bootstrap, name, admin}
	s.prepare()
	run(s)
}

func pollsAccept(s *scenario) {
	s.send("a", "b", "c")
	member := s.member()
	equal(values(s.take(member, 3)), "a 1", "b 1", "c 1")
	check(s.nothing(member), "accepted by the next poll")
	member.Close()
	other := s.member()
	defer other.Close()
	check(s.nothing(other), "accepted for the whole group")
}

func acknowledgements(s *scenario) {
	s.send("accepted", "released", "rejected")
	var failed error
	member := s.member(kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
		failed = errors.Join(failed, results.Error())
	}))
	defer member.Close()
	held := s.take(member, 3)
	held[0].Ack(kgo.AckAccept)
	held[1].Ack(kgo.AckRelease)
	held[2].Ack(kgo.AckReject)
	check(member.FlushAcks(s.ctx) == nil, "flush")
	equal(values(s.take(member, 1)), "released 2")
	check(s.nothing(member), "all are done")
	check(failed == nil, fmt.Sprint("acknowledgements: ", failed))
}

func manyMembers(s *scenario) {
	members := []*kgo.Client{s.member(), s.member(), s.member()}
	for _, member := range members {
		defer member.Close()
		check(s.nothing(member), "nothing yet")
	}
	var all []string
	for number := range 30 {
		s.send(fmt.Sprint(number))
	}
	for len(all) < 30 {
		for _, member := range members {
			all = append(all, values(s.poll(member, 200*time.Millisecond))...)
		}
		check(s.ctx.Err() == nil, fmt.Sprint("too few records: ", all))
	}
	slices.Sort(all)
	check(len(slices.Compact(all)) == 30, "each record once")
}

func strictLimit(s *scenario) {
	records := make([]*kgo.Record, 5)
	for number := range records {
		records[number] = &kgo.Record{Topic: s.topic, Value: []byte(fmt.Sprint(number))}
	}
	batching := must(kgo.NewClient(kgo.SeedBrokers(s.bootstrap), kgo.ProducerLinger(500*time.Millisecond)))
	defer batching.Close()
	check(batching.ProduceSync(s.ctx, records...).FirstErr() == nil, "produce")
	member := s.member(kgo.ShareMaxRecords(2), kgo.ShareMaxRecordsStrict())
	defer member.Close()
	equal(values(s.take(member, 1)), "0 1", "1 1")
	equal(values(s.take(member, 1)), "2 1", "3 1")
}

func renewedLock(s *scenario) {
	s.configure("share.record.lock.duration.ms", "15000")
	s.send("long")
	worker := s.member()
	defer worker.Close()
	record := s.take(worker, 1)[0]
	other := s.member() // a member fetches ahead of its polls: an earlier one might have got the record
	defer other.Close()
	left := time.Until(record.AcquisitionDeadline())
	check(left > 5*time.Second && left <= 15*time.Second, fmt.Sprint("the lock lasts ", left))
	for end := time.Now().Add(18 * time.Second); time.Now().Before(end); {
		record.Ack(kgo.AckRenew)
		check(worker.FlushAcks(s.ctx) == nil, "renew")
		equal(values(s.poll(other, 2*time.Second)))
	}
	record.Ack(kgo.AckAccept)
	check(worker.FlushAcks(s.ctx) == nil, "accept")
	check(s.nothing(other), "accepted after more than one duration")
}

func memberThatLeaves(s *scenario) {
	s.send("a", "b")
	leaving := s.member()
	held := s.take(leaving, 2)
	held[0].Ack(kgo.AckAccept)
	held[1].Ack(kgo.AckRelease)
	leaving.Close()
	member := s.member()
	defer member.Close()
	equal(values(s.take(member, 1)), "b 2")
}

func givenUp(s *scenario) {
	s.send("poison")
	member := s.member()
	defer member.Close()
	for delivery := 1; delivery <= 5; delivery++ {
		held := s.take(member, 1)
		equal(values(held), fmt.Sprintf("poison %d", delivery))
		held[0].Ack(kgo.AckRelease)
		check(member.FlushAcks(s.ctx) == nil, "release")
	}
	check(s.nothing(member), "given up")
}

// --- the words of the scenarios

func (s *scenario) member(options ...kgo.Opt) *kgo.Client {
	mine := []kgo.Opt{kgo.SeedBrokers(s.bootstrap), kgo.ShareGroup(s.topic), kgo.ConsumeTopics(s.topic)}
	return must(kgo.NewClient(append(mine, options...)...))
}

func (s *scenario) send(values ...string) {
	for _, value := range values {
		record := &kgo.Record{Topic: s.topic, Value: []byte(value)}
		check(s.admin.ProduceSync(s.ctx, record).FirstErr() == nil, "produce")
	}
}

// poll returns the records of one poll, which are accepted by the next one.
func (s *scenario) poll(member *kgo.Client, wait time.Duration) []*kgo.Record {
	ctx, cancel := context.WithTimeout(s.ctx, wait)
	defer cancel()
	fetches := member.PollFetches(ctx)
	for _, failure := range fetches.Errors() {
		check(errors.Is(failure.Err, context.DeadlineExceeded), fmt.Sprint("poll: ", failure.Err))
	}
	return fetches.Records()
}

// take returns the first records that come, which are at least so many: they were written before.
func (s *scenario) take(member *kgo.Client, least int) []*kgo.Record {
	for {
		records := s.poll(member, time.Second)
		check(s.ctx.Err() == nil, "no record comes")
		if len(records) > 0 {
			check(len(records) >= least, fmt.Sprintf("fewer than %d: %v", least, values(records)))
			return records
		}
	}
}

func (s *scenario) nothing(member *kgo.Client) bool { return len(s.poll(member, inVain)) == 0 }

func (s *scenario) prepare() {
	features := kmsg.NewPtrUpdateFeaturesRequest()
	use := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	use.Feature, use.MaxVersionLevel, use.UpgradeType = "share.version", 1, 1
	features.FeatureUpdates = append(features.FeatureUpdates, use)
	must(features.RequestWith(s.ctx, s.admin))
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = s.topic, 1, 1
	create.Topics = append(create.Topics, topic)
	created := must(create.RequestWith(s.ctx, s.admin))
	must(0, kerr.ErrorForCode(created.Topics[0].ErrorCode))
	s.configure("share.auto.offset.reset", "earliest")
}

func (s *scenario) configure(name, value string) {
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = groupResource, s.topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, kmsg.StringPtr(value)
	resource.Configs = append(resource.Configs, config)
	alter.Resources = append(alter.Resources, resource)
	altered := must(alter.RequestWith(s.ctx, s.admin))
	must(0, kerr.ErrorForCode(altered.Resources[0].ErrorCode))
}

// values returns each record's value and the number of its delivery.
func values(records []*kgo.Record) []string {
	all := make([]string, len(records))
	for index, record := range records {
		all[index] = fmt.Sprintf("%s %d", record.Value, record.DeliveryCount())
	}
	return all
}

func equal(found []string, expected ...string) {
	check(slices.Equal(found, expected), fmt.Sprintf("got %v, expected %v", found, expected))
}

func must[T any](value T, err error) T {
	check(err == nil, fmt.Sprint(err))
	return value
}

func check(holds bool, what string) {
	if !holds {
		fmt.Fprintln(os.Stderr, what)
		panic(what)
	}
}
