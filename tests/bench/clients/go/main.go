// The applications of Applications.java, with Pulsar's Go client: same input, same events.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	run  = 8
	keys = 10
)

var (
	mutex  sync.Mutex
	events []string
	types  = map[string]pulsar.SubscriptionType{
		"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Key_Shared": pulsar.KeyShared,
	}
	writers []func()
)

func note(kind, who, what string) {
	mutex.Lock()
	defer mutex.Unlock()
	events = append(events, fmt.Sprintf("%s %s %s %d\n", kind, who, what, time.Now().UnixMicro()))
}

func must[T any](made T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return made
}

func connect(url string) pulsar.Client {
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	return must(pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: log.NewLoggerWithLogrus(silent)}))
}

func produce(client pulsar.Client, index, topic string, rate int) {
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, SendTimeout: -1, MaxPendingMessages: 50000, DisableBlockIfQueueFull: true,
		BatchingMaxPublishDelay: 20 * time.Millisecond, BatcherBuilderType: pulsar.KeyBasedBatchBuilder,
	}))
	began, sent := time.Now(), 0
	writers = append(writers, func() {
		due := int(time.Since(began).Seconds() * float64(rate))
		for ; sent < due; sent++ {
			number := sent
			message := &pulsar.ProducerMessage{
				Key: fmt.Sprintf("k%d", number/run%keys), Payload: []byte(index + " " + strconv.Itoa(number)),
			}
			producer.SendAsync(context.Background(), message,
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					kind := "A"
					if err != nil {
						kind = "E"
					}
					note(kind, index, strconv.Itoa(number))
				})
		}
	})
}

func consume(client pulsar.Client, index string, options pulsar.ConsumerOptions) {
	consumer := must(client.Subscribe(options))
	go func() {
		for {
			if message, err := consumer.Receive(context.Background()); err == nil {
				note("R", index, string(message.Payload()))
				_ = consumer.Ack(message)
			}
		}
	}()
}

func read(client pulsar.Client, index, topic string) {
	reader := must(client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()}))
	go func() {
		for {
			if message, err := reader.Next(context.Background()); err == nil {
				note("R", index, string(message.Payload()))
			}
		}
	}()
}

func start(client pulsar.Client, words []string) {
	switch words[0] {
	case "producer":
		produce(client, words[1], words[2], must(strconv.Atoi(words[3])))
	case "consumer":
		consume(client, words[1], pulsar.ConsumerOptions{
			Topic: words[2], SubscriptionName: words[3], Type: types[words[4]],
		})
	case "pattern":
		consume(client, words[1], pulsar.ConsumerOptions{
			TopicsPattern: words[2], SubscriptionName: words[3], Type: pulsar.Shared, AutoDiscoveryPeriod: 2 * time.Second,
		})
	case "reader":
		read(client, words[1], words[2])
	}
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	var client pulsar.Client
	for input.Scan() && input.Text() != "" {
		if input.Text() == "client" {
			client = connect(os.Args[1])
		} else {
			start(client, strings.Fields(input.Text()))
		}
	}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(4 * time.Millisecond):
				for _, send := range writers {
					send()
				}
			}
		}
	}()
	file := must(os.Create(os.Args[2]))
	if input.Scan() && input.Text() == "stop" {
		close(stop)
		if input.Scan() && input.Text() == "end" {
			mutex.Lock()
			must(file.WriteString(strings.Join(events, "")))
			must(0, file.Close())
		}
	}
	os.Exit(0)
}
