import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** BROKERS COUNT TOPIC=CODEC …: sends so many records to partition 0 of each, in batches of up to 200 kB. */
public class Produce {
  public static void main(String[] args) {
    for (int a = 2; a < args.length; a++) {
      String[] pair = args[a].split("=");
      Properties settings = new Properties();
      settings.put("bootstrap.servers", args[0]);
      settings.put("compression.type", pair[1]);
      settings.put("batch.size", "200000");
      settings.put("linger.ms", "200");
      try (KafkaProducer<String, String> producer =
          new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
        for (int i = 0; i < Integer.parseInt(args[1]); i++) {
          String value = "line " + i + " of a compressed batch, and the tide comes in";
          producer.send(new ProducerRecord<>(pair[0], 0, "key " + i % 7, value));
        }
      }
    }
  }
}
